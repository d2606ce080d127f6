// A real gateway: the `capstan` binary on a free port of loopback, with a journal in memory.
import { spawn } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = new URL("../../../../", import.meta.url);
const binary = process.env.CAPSTAN_BIN ?? fileURLToPath(new URL("target/debug/capstan", root));

const freePort = () =>
  new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

/** Starts a gateway; `config` is the text of a capstan.toml. It ends with the test (or suite) that asked for it. */
export async function startGateway({ args = [], config = "", env = {} } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "capstan-ag-ui-"));
  const file = join(folder, "capstan.toml");
  writeFileSync(file, config);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const { CAPSTAN_ENV, CAPSTAN_DEBUG, ...clean } = process.env;
  const child = spawn(binary, ["serve", "--listen", `127.0.0.1:${port}`, "--journal", "memory:", "--config", file, ...args], {
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...clean, ...env },
  });
  // The log is of interest only if there is nothing else to look at.
  let log = "";
  child.stderr.on("data", (text) => (log += text));
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
  };
  for (let tries = 0; tries < 200; tries++) {
    try {
      if ((await fetch(`${url}/readyz`)).ok) return { url, endpoint: `${url}/v1/ag-ui`, stop, ended, child };
    } catch {
      // Not listening yet.
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  await stop();
  throw new Error(`the gateway did not start: ${log}`);
}
