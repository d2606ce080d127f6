// The package without its React parts stays small: under 14.5 kB minified and gzipped, and
// without dependencies.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { build } from "vite";
import { expect, test } from "vitest";

const LIMIT = 14_500;

test("everything but React is under 14.5 kB, minified and gzipped", async () => {
  const entry = fileURLToPath(new URL("../src/index.ts", import.meta.url));
  const built = await build({
    configFile: false,
    logLevel: "silent",
    // An application's build. Library mode would keep white space.
    build: {
      write: false,
      minify: true,
      modulePreload: false,
      target: "es2022",
      rollupOptions: { input: entry, preserveEntrySignatures: "strict" },
    },
  });
  const { output } = built as unknown as { output: { code: string }[] };
  const size = gzipSync(output[0]!.code).length;
  console.log(`capstan without React: ${output[0]!.code.length} bytes, ${size} gzipped`);
  expect(size).toBeLessThan(LIMIT);
});

test("there are no runtime dependencies", () => {
  const manifest = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  expect(manifest.dependencies).toBeUndefined();
});
