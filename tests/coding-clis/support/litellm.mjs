// LiteLLM as bench/peers/install installs it. It takes long to start, so one serves all tests: its
// model is an address that forwards to the model of the test that runs.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { clis } from "./cli.mjs";

const installed = "../../../bench/peers/.installed/litellm/bin/litellm";
const program = process.env.LITELLM_BIN ?? fileURLToPath(new URL(installed, import.meta.url));

export const hasLiteLlm = existsSync(program);

/** A server on a free port of loopback. */
async function listen(server) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server.address().port;
}

/** A free port of loopback. */
async function freePort() {
  const server = createServer();
  const port = await listen(server);
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Forwards connections to the server of the moment, and breaks them as that server does. */
async function startSwitch() {
  let target;
  const sockets = new Set();
  const server = createServer((socket) => {
    const upstream = connect(Number(target.port), target.hostname);
    for (const [one, other] of [
      [socket, upstream],
      [upstream, socket],
    ]) {
      sockets.add(one);
      one.pipe(other);
      one.on("error", () => other.destroy());
      one.on("close", () => other.destroy());
    }
  });
  const port = await listen(server);
  const pointTo = (url) => {
    for (const socket of sockets) socket.destroy();
    sockets.clear();
    target = new URL(url);
  };
  return { url: `http://127.0.0.1:${port}`, pointTo, stop: () => server.close() };
}

/** @param {"claude"} cli */
export async function startLiteLlm(cli) {
  const model = await startSwitch();
  const folder = mkdtempSync(join(tmpdir(), "litellm-"));
  const { model: name } = clis[cli];
  const params = `{ model: "anthropic/${name}", api_base: "${model.url}", api_key: sk-x }`;
  const config = `model_list:\n  - model_name: ${name}\n    litellm_params: ${params}\n`;
  writeFileSync(join(folder, "config.yaml"), config);
  const port = await freePort();
  const args = ["--config", "config.yaml", "--host", "127.0.0.1", "--port", `${port}`];
  const LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY = "true";
  const env = { ...process.env, LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY };
  const child = spawn(program, args, { cwd: folder, env, stdio: "ignore" });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const url = `http://127.0.0.1:${port}`;
  const isReady = () => fetch(`${url}/health/readiness`).then((it) => it.ok, () => false);
  while (!(await isReady())) {
    if (child.exitCode !== null) throw new Error("LiteLLM did not start");
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const stop = async () => {
    child.kill("SIGKILL");
    await ended;
    model.pointTo(url);
    model.stop();
    rmSync(folder, { recursive: true, force: true });
  };
  return { url, pointTo: model.pointTo, stop };
}
