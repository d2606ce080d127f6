#!/usr/bin/env node
// Hands over to the binary, which comes in a package of its own for each platform.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { constants } from "node:os";

const wanted = `capstan-${process.platform}-${process.arch}`;
let binary;
try {
  binary = createRequire(import.meta.url).resolve(`${wanted}/bin/capstan`);
} catch {
  console.error(`error: there is no binary for this platform: the package ${wanted} is missing`);
  console.error(
    "remedy: install without --omit=optional; on another platform build it: " +
      "https://github.com/capstan-run/capstan",
  );
  process.exit(1);
}

const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
// This process ends when the binary does. A terminal's Ctrl-C reaches both by itself; the others
// are sent to one of them.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`error: ${binary} cannot be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
