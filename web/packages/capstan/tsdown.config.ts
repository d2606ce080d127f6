import { defineConfig } from "tsdown";

export default defineConfig({
  entry: {
    index: "src/index.ts",
    "ag-ui-error-codes": "src/ag-ui-error-codes.ts",
    "fault-help": "src/generated/fault-help.ts",
    "react/index": "src/react/index.ts",
  },
  format: "esm",
  platform: "neutral",
  target: "es2022",
  dts: true,
});
