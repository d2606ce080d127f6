import { fileURLToPath } from "node:url";

import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: {
    alias: { capstan: fileURLToPath(new URL("../packages/capstan/src/index.ts", import.meta.url)) },
  },
  // Six at a time: these tests mostly wait. Files share nothing that one could leave behind, so a
  // worker imports the rest once.
  test: {
    include: ["test/*.test.ts"],
    globalSetup: "test/chromium.ts",
    testTimeout: 40_000,
    hookTimeout: 40_000,
    // Only what never comes needs all of it.
    expect: { poll: { timeout: 10_000 } },
    maxWorkers: 6,
    isolate: false,
  },
});
