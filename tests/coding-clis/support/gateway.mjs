// A gateway in front of a model, with a journal that outlives it.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { startCluster } from "../../../web/testing/cluster.mjs";
import { startGateway } from "../../../web/testing/gateway.mjs";
import { clis } from "./cli.mjs";

/** The agent behind each CLI, which speaks the CLI's own protocol. */
const agents = {
  claude: (url) => `kind = "anthropic"\nurl = "${url}"\n`,
  codex: (url) => `kind = "openai"\napi = "responses"\nurl = "${url}/v1"\n`,
};

/** One agent, with the name that the CLI requests. */
const agent = (cli, model) => `[[agents]]
name = "${clis[cli].model}"
model = "a-model"
${agents[cli](model)}`;

const env = { ANTHROPIC_API_KEY: "sk-x", OPENAI_API_KEY: "sk-x" };

/**
 * Starts a gateway whose only agent is a model.
 * @param {{ cli: "claude"
 * "codex", model: string, backoff?: number }} options
 */
export async function startCapstan({ cli, model, backoff = 0.01 }) {
  const folder = mkdtempSync(join(tmpdir(), "capstan-journal-"));
  const config = `[timeouts]\nbackoff = ${backoff}\n${agent(cli, model)}`;
  const journal = `disk:${join(folder, "journal")}`;
  const options = { config, journal, env };
  let running = await startGateway(options);
  const { url } = running;
  return {
    url,
    /** Kills it, and starts it again at the same address. */
    kill: async () => {
      await running.stop();
      running = await startGateway({ ...options, listen: new URL(url).host });
    },
    stop: async () => {
      await running.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/**
 * Starts two gateways over one PostgreSQL, behind one address.
 * @param {{ cli: "claude"
 * "codex", model: string }} options
 */
export async function startPair({ cli, model }) {
  const cluster = await startCluster({ count: 2, config: agent(cli, model), env });
  return {
    url: cluster.url,
    /** Kills the gateway that works. The other one answers from then on. */
    kill: async () => {
      const { streams } = await (await fetch(`${cluster.url}/v1/streams?limit=1`)).json();
      await cluster.killOwnerOf(streams[0].stream_id);
    },
    stop: cluster.stop,
  };
}
