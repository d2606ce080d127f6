// A gateway in front of a model, with a journal that outlives it.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { startGateway } from "../../../web/testing/gateway.mjs";
import { clis } from "./cli.mjs";

/** What stands behind each CLI: an agent that speaks the CLI's own protocol. */
const agents = {
  claude: (url) => `kind = "anthropic"\nurl = "${url}"\n`,
  codex: (url) => `kind = "openai"\napi = "responses"\nurl = "${url}/v1"\n`,
};

/**
 * Starts one whose only agent is a model, named as the CLI asks for it.
 * @param {{ cli: "claude" | "codex", model: string, backoff?: number }} options
 */
export async function startCapstan({ cli, model, backoff = 0.01 }) {
  const folder = mkdtempSync(join(tmpdir(), "capstan-journal-"));
  const config = `[timeouts]
backoff = ${backoff}
[[agents]]
name = "${clis[cli].model}"
model = "a-model"
${agents[cli](model)}`;
  const journal = `disk:${join(folder, "journal")}`;
  const options = { config, journal, env: { ANTHROPIC_API_KEY: "sk-x", OPENAI_API_KEY: "sk-x" } };
  let running = await startGateway(options);
  const { url } = running;
  return {
    url,
    /** Kills it, and starts it again at the same address. */
    kill: async () => {
      await running.stop();
      running = await startGateway({ ...options, listen: new URL(url).host });
    },
    /** Its runs, oldest first. */
    runs: async () => {
      const { streams } = await (await fetch(`${url}/v1/streams?limit=100`)).json();
      return streams.reverse();
    },
    stop: async () => {
      await running.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
