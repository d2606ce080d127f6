// The real gateway binary, with a journal in memory and a port of its own.
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export interface Gateway {
  url: string;
  stop: () => Promise<void>;
}

const binary = process.env["CAPSTAN_BIN"] ?? fileURLToPath(new URL("../../../target/debug/capstan", import.meta.url));

/** Starts a gateway; `config` is the text of a capstan.toml. */
export async function startGateway(config = ""): Promise<Gateway> {
  if (!existsSync(binary)) throw new Error(`${binary} is missing: build it with \`cargo build --package capstan\``);
  const folder = mkdtempSync(join(tmpdir(), "capstan-e2e-"));
  writeFileSync(join(folder, "capstan.toml"), config);
  const child = spawn(binary, ["serve", "--listen", "127.0.0.1:0", "--journal", "memory:"], { cwd: folder, env: { ...process.env, RUST_LOG: "warn" } });
  const port = await portOf(child);
  const stop = async () => {
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await gone;
    rmSync(folder, { recursive: true });
  };
  return { url: `http://127.0.0.1:${port}`, stop };
}

function portOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let said = "";
    const listen = (chunk: Buffer) => {
      said += chunk.toString();
      const [, port] = /http:\/\/[^\s:]+:(\d+)/.exec(said) ?? [];
      if (port) resolve(port);
    };
    child.stdout?.on("data", listen);
    child.stderr?.on("data", listen);
    child.once("exit", () => reject(new Error(`the gateway did not start: ${said}`)));
  });
}
