import { defineConfig } from "tsdown";

export default defineConfig({
  entry: {
    index: "src/index.ts",
    "ag-ui-error-codes": "src/ag-ui-error-codes.ts",
    "ai-sdk/index": "src/ai-sdk/index.ts",
    "fault-help": "src/generated/fault-help.ts",
    openai: "src/openai.ts",
    "react/index": "src/react/index.ts",
  },
  // CommonJS as well: under `node16` its types are asked for, and older Nodes cannot require a
  // module.
  format: ["esm", "cjs"],
  platform: "neutral",
  target: "es2022",
  sourcemap: true,
  // Each file says its types by itself, so that they need no compiler.
  dts: { oxc: true },
  // npm takes a licence from the package's own folder only.
  copy: [{ from: "../../../LICENSE", to: "." }],
});
