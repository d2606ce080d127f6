// A provider that plays a coding model: it writes a file by a tool, then answers. Faults are lines
// of `capstan fake-provider --fault`.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";

import { startFakeProvider } from "../../../web/testing/gateway.mjs";

export const CONTENT = "Ahoy from the model\n";
export const ANSWER = "The file is written.";

/** The tool call by which each CLI writes a file. */
const tools = {
  claude: {
    offers: "Write",
    arguments: (file) => ({ file_path: file, content: CONTENT }),
  },
  codex: {
    offers: "exec_command",
    arguments: (file) => ({ cmd: `printf '${CONTENT.replace("\n", "\\n")}' > '${file}'` }),
  },
  // Codex with its own tool for files, which takes a text.
  patch: {
    offers: "apply_patch",
    input: (file) => `*** Begin Patch\n*** Add File: ${basename(file)}\n+${CONTENT}*** End Patch\n`,
  },
};

const script = (tool, file, slow) => `
unique_ids = true
token_interval = ${slow ? 0.1 : 0.002}
[answer]
text = ${JSON.stringify(ANSWER)}
[[replies]]
offers = "${tool.offers}"
tool_results = 0
[replies.answer]
reasoning = "A short file will do here."
signed = true
text = "I write the file that you asked for."
[[replies.answer.tool_calls]]
name = "${tool.offers}"
${written(tool, file)}
`;

/** The input that the model writes for a tool: a text, or an object. */
const written = (tool, file) =>
  tool.input
    ? `input = ${JSON.stringify(tool.input(file))}`
    : `arguments = ${inline(tool.arguments(file))}`;

/** An inline table: its strings are JSON's. */
const inline = (object) =>
  `{ ${Object.entries(object)
    .map(([name, value]) => `${name} = ${JSON.stringify(value)}`)
    .join(", ")} }`;

/**
 * Starts one for a CLI that is to write `file`, by its usual tool or by another.
 * @param {{ cli: "claude" | "codex", tool?: "patch", file: string, faults?: string[],
 * slow?: boolean }} options
 */
export async function startModel({ cli, tool = cli, file, faults = [], slow = false }) {
  const folder = mkdtempSync(join(tmpdir(), "capstan-model-"));
  const path = join(folder, "script.toml");
  writeFileSync(path, script(tools[tool], file, slow));
  const flags = faults.flatMap((fault) => ["--fault", fault]);
  const provider = await startFakeProvider(["--script", path, ...flags]);
  /** The calls of a model, with their requests and ends. */
  const calls = async () => {
    const response = await fetch(`${provider.url}/fake/calls`);
    return (await response.json()).calls.filter((call) => call.model !== undefined);
  };
  const stop = async () => {
    await provider.stop();
    rmSync(folder, { recursive: true });
  };
  return { url: provider.url, calls, stop };
}
