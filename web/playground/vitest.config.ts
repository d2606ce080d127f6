import { mergeConfig } from "vitest/config";

import vite from "./vite.config.js";

export default mergeConfig(vite, { test: { include: ["test/*.test.{ts,tsx}"] } });
