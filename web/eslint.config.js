// Types are tsc's business. Here is what they cannot see.
import parser from "@typescript-eslint/parser";
import { globalIgnores } from "eslint/config";

import effectBody from "./lint/effect-body.js";

export default [
  globalIgnores(["**/dist/", "**/generated/"]),
  {
    files: ["**/*.{js,mjs,ts,tsx}"],
    languageOptions: { parser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    plugins: { capstan: { rules: { "effect-body": effectBody } } },
    rules: { "capstan/effect-body": "error" },
  },
];
