// The published CLIs in a home and a folder of their own, with nothing of this machine's settings.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const capstan =
  process.env.CAPSTAN_BIN ??
  fileURLToPath(new URL("../../../target/debug/capstan", import.meta.url));
const bin = (name) => fileURLToPath(new URL(`../node_modules/.bin/${name}`, import.meta.url));

/** Longer than any turn takes, shorter than what a CLI waits for a silent server. */
const LONGEST = 60_000;

const config = (url, model, hasSocket) => `model = "${model}"
model_provider = "it"
[model_providers.it]
name = "it"
base_url = "${url}/v1"
wire_api = "responses"
supports_websockets = ${hasSocket}
`;

/** How each is started without Capstan's help: the settings that send it to a server. */
export const clis = {
  claude: {
    model: "claude-opus-5-5",
    flags: ["--private"],
    start: ({ url, prompt }) => ({
      command: [bin("claude"), "-p", prompt, "--allowedTools", "Write", "--output-format", "json"],
      env: {
        ANTHROPIC_BASE_URL: url,
        ANTHROPIC_AUTH_TOKEN: "sk-local",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      },
    }),
    answer: (output) => JSON.parse(output).result,
  },
  codex: {
    model: "gpt-5.5",
    flags: [],
    start: ({ url, home, prompt, hasSocket = false, resumes = false }) => {
      const folder = join(home, ".codex");
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, "config.toml"), config(url, clis.codex.model, hasSocket));
      const free = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
      const how = resumes ? ["resume", ...free, "--last"] : free;
      return { command: [bin("codex"), "exec", ...how, prompt], env: {} };
    },
    answer: (output) => output.trim(),
  },
};

/** A folder for one turn: the CLI's home, and the file that it is to write. */
export function room() {
  const folder = mkdtempSync(join(tmpdir(), "capstan-cli-"));
  const [home, work] = [join(folder, "home"), join(folder, "work")];
  mkdirSync(home);
  mkdirSync(work);
  const file = join(work, "note.txt");
  return {
    home,
    work,
    file,
    written: () => (existsSync(file) ? readFileSync(file, "utf8") : undefined),
    clear: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** The CLI as `capstan` starts it, with the CLI's own arguments behind `--`. */
const byCapstan = (cli, url, [program, ...args]) => ({
  command: [capstan, cli, "--url", url, "--program", program, ...clis[cli].flags, "--", ...args],
  env: {},
});

/**
 * One turn of a CLI against a server.
 * @param {{ cli: "claude" | "codex", url: string, room: ReturnType<typeof room>, by?: "capstan",
 * hasSocket?: boolean, resumes?: boolean }} options
 */
export async function turn({ cli, url, room, by, hasSocket, resumes }) {
  const { start, answer } = clis[cli];
  const prompt = "Write a greeting into note.txt";
  const own = start({ url, home: room.home, prompt, hasSocket, resumes });
  const { command, env } = by === "capstan" ? byCapstan(cli, url, own.command) : own;
  // A proxy that is not there: nothing leaves this machine.
  const away = { HTTPS_PROXY: "http://127.0.0.1:9", NO_PROXY: "127.0.0.1" };
  const began = performance.now();
  const { code, stdout, stderr } = await run(command, room.work, {
    PATH: process.env.PATH,
    HOME: room.home,
    TERM: "dumb",
    ...away,
    ...env,
  });
  const seconds = (performance.now() - began) / 1000;
  return { code, answer: read(answer, stdout), stderr, seconds };
}

function read(answer, stdout) {
  try {
    return answer(stdout);
  } catch {
    return stdout;
  }
}

function run([program, ...args], cwd, env) {
  const options = { cwd, env, stdio: ["ignore", "pipe", "pipe"], timeout: LONGEST };
  const child = spawn(program, args, options);
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (text) => (stdout += text));
  child.stderr.on("data", (text) => (stderr += text));
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, stdout, stderr }));
  });
}
