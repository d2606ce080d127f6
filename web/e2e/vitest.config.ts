import { fileURLToPath } from "node:url";

import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: {
    alias: { capstan: fileURLToPath(new URL("../packages/capstan/src/index.ts", import.meta.url)) },
  },
  // Six at a time, because these tests mostly wait. Files share no state, so a worker imports
  // modules once.
  test: {
    include: ["test/*.test.ts"],
    globalSetup: "test/chromium.ts",
    testTimeout: 40_000,
    hookTimeout: 40_000,
    // Only a wait for something that never comes takes so long.
    expect: { poll: { timeout: 10_000 } },
    maxWorkers: 6,
    isolate: false,
  },
});
