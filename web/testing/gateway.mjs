// The real binary on a free port of loopback: a gateway, by default with a journal in memory, or a
// proxy that breaks streams.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const binary =
  process.env["CAPSTAN_BIN"] ??
  fileURLToPath(new URL("../../target/debug/capstan", import.meta.url));

/**
 * Starts a gateway; `config` is the text of a capstan.toml.
 * @param {{ args?: string[], config?: string, listen?: string, journal?: string, env?:
 * Record<string, string> }} [options]
 */
export async function startGateway({
  args = [],
  config = "",
  listen = "127.0.0.1:0",
  journal = "memory:",
  env = {},
} = {}) {
  const started = await start(
    ["serve", "--listen", listen, "--journal", journal, ...args],
    config,
    env,
  );
  return { ...started, endpoint: `${started.url}/v1/ag-ui` };
}

/** @typedef {Awaited<ReturnType<typeof startGateway>>} Gateway */

/**
 * Starts `capstan chaos` in front of a server.
 * @param {string} target
 * @param {string[]} faults
 */
export function startChaos(target, faults) {
  return start(["chaos", "--listen", "127.0.0.1:0", "--to", target, ...faults]);
}

/**
 * Starts `capstan fake-provider`.
 * @param {string[]} args
 */
export function startFakeProvider(args) {
  return start(["fake-provider", "--listen", "127.0.0.1:0", ...args]);
}

/** @param {string[]} args @param {Record<string, string>} more */
async function start(args, config = "", more = {}) {
  if (!existsSync(binary))
    throw new Error(`${binary} is missing: build it with \`cargo build --package capstan\``);
  const folder = mkdtempSync(join(tmpdir(), "capstan-web-"));
  writeFileSync(join(folder, "capstan.toml"), config);
  // Without this machine's settings.
  const { CAPSTAN_ENV, CAPSTAN_DEBUG, ...env } = process.env;
  const child = spawn(binary, args, {
    cwd: folder,
    env: { ...env, ...more, RUST_LOG: "warn" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const stop = async () => {
    child.kill("SIGKILL"); // Runs without readers would delay a graceful end.
    await ended;
    rmSync(folder, { recursive: true });
  };
  return { url: await urlOf(child), child, ended, stop };
}

/**
 * The address is the first thing it says; the log is of interest only if there is none.
 * @param {import("node:child_process").ChildProcessByStdio<null, import("node:stream").Readable,
 * import("node:stream").Readable>} child
 * @returns {Promise<string>}
 */
function urlOf(child) {
  return new Promise((resolve, reject) => {
    let said = "";
    for (const output of [child.stdout, child.stderr]) {
      output.on("data", (chunk) => {
        said += chunk;
        const [url] = /http:\/\/[^\s,]+:\d+/.exec(said) ?? [];
        if (url) resolve(url);
      });
    }
    child.once("exit", () => reject(new Error(`it did not start: ${said}`)));
  });
}
