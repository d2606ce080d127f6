import { mergeConfig } from "vitest/config";

import vite from "./vite.config.js";

// What takes this long is stuck: properties take their time on a busy machine.
export default mergeConfig(vite, {
  test: { include: ["test/**/*.test.{ts,tsx}"], testTimeout: 60_000 },
});
