import { fileURLToPath } from "node:url";

import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

import { weigh } from "./build/weight.js";

const source = (path: string) =>
  fileURLToPath(new URL(`../packages/capstan/src/${path}`, import.meta.url));
const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/**
 * sonner inserts its styles by script, which our policy forbids. Its stylesheet is imported
 * instead.
 */
function sonnerWithoutInlineStyle(): Plugin {
  return {
    name: "sonner-without-inline-style",
    enforce: "pre",
    transform(code, id) {
      if (!id.includes("/sonner/dist/")) return null;
      return {
        code: code.replace("function __insertCSS(code) {", "function __insertCSS(code) { return;"),
        map: null,
      };
    },
  };
}

export default defineConfig({
  plugins: [
    sonnerWithoutInlineStyle(),
    react(),
    weigh({ page: "console.html", own: "/src/console/", first: 130_000, ownMost: 50_000 }),
  ],
  resolve: {
    alias: [
      { find: /^capstan\/(react|ai-sdk)$/, replacement: source("$1/index.ts") },
      { find: /^capstan\/openai$/, replacement: source("openai.ts") },
      { find: /^capstan$/, replacement: source("index.ts") },
    ],
  },
  build: {
    outDir: "dist",
    emptyOutDir: true,
    modulePreload: false,
    // Nothing inline: the policy allows data: for pictures only.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 400,
    // The package loads sonner with the first toast. This page includes it.
    rolldownOptions: {
      input: { index: here("index.html"), console: here("console.html") },
      checks: { ineffectiveDynamicImport: false },
    },
  },
  server: {
    proxy: Object.fromEntries(
      ["/v1", "/health", "/docs", "/openapi.json", "/errors"].map((path) => [
        path,
        "http://localhost:8787",
      ]),
    ),
  },
});
