// Three gateways over one PostgreSQL behind nginx, as in `make run CLUSTER=3`, for rolling
// restarts.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { type Gateway, startGateway } from "../../testing/gateway.mjs";

const GATEWAYS = 3;
/** Gateways that leave hand over their runs at once. */
const CONFIG = "[timeouts]\ndrain = 0.05\nbackoff = 0.001\n";

/** A free port of loopback, for a server that must return to it. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** A server that ends when its input closes. */
export async function startPostgres(): Promise<{ url: string; child: ChildProcess }> {
  const script = fileURLToPath(new URL("../../../scripts/postgres", import.meta.url));
  const child = spawn(script, ["sh", "-c", 'echo "$CAPSTAN_TEST_POSTGRES"; cat >/dev/null'], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const url = await new Promise<string>((resolve, reject) => {
    child.stdout.once("data", (line) => resolve(String(line).trim()));
    child.once("exit", () => reject(new Error("PostgreSQL did not start")));
  });
  return { url, child };
}

/** Requests go to any gateway, and to the next one if that does not answer. */
function nginxConfig(folder: string, port: number, gateways: readonly number[]): string {
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (kind) => `${kind}_temp_path ${folder}/${kind};`,
  );
  const servers = gateways.map(
    (gateway) => `server 127.0.0.1:${gateway} max_fails=1 fail_timeout=1s;`,
  );
  return `daemon off; master_process off; pid ${folder}/pid; error_log ${folder}/log;
    events { worker_connections 1024; }
    http { access_log off; ${temporary.join(" ")} upstream gateways { random; ${servers.join(" ")} }
    server { listen 127.0.0.1:${port}; location / {
    proxy_pass http://gateways; proxy_http_version 1.1;
    proxy_set_header Connection ''; proxy_set_header Host $http_host; proxy_buffering off;
    proxy_read_timeout 3700s; } } }`;
}

export class Town {
  readonly url: string;
  #gateways: Gateway[] = [];

  private constructor(
    readonly port: number,
    readonly ports: readonly number[],
    readonly journal: string,
    readonly folder: string,
    readonly others: readonly ChildProcess[],
  ) {
    this.url = `http://127.0.0.1:${port}`;
  }

  static async start(): Promise<Town> {
    const [port = 0, ...ports] = await Promise.all(Array.from({ length: GATEWAYS + 1 }, freePort));
    const postgres = await startPostgres();
    const folder = mkdtempSync(join(tmpdir(), "capstan-town-"));
    writeFileSync(join(folder, "conf"), nginxConfig(folder, port, ports));
    const nginx = spawn("nginx", ["-c", join(folder, "conf"), "-e", join(folder, "log")], {
      stdio: "ignore",
    });
    const town = new Town(port, ports, postgres.url, folder, [postgres.child, nginx]);
    for (let n = 0; n < GATEWAYS; n += 1) await town.#begin(n);
    return town;
  }

  async #begin(n: number): Promise<void> {
    process.env["HOSTNAME"] = `gateway-${n + 1}`;
    this.#gateways[n] = await startGateway({
      listen: `127.0.0.1:${this.ports[n]}`,
      journal: this.journal,
      config: CONFIG,
    });
  }

  /** Like a deploy: one gateway shuts down, and after its end another one replaces it. */
  async restart(n: number): Promise<void> {
    const gateway = this.#gateways[n];
    gateway?.child.kill("SIGTERM");
    await gateway?.ended;
    await this.#begin(n);
  }

  async stop(): Promise<void> {
    await Promise.all(this.#gateways.map((gateway) => gateway.stop()));
    const [postgres, nginx] = this.others;
    nginx?.kill();
    postgres?.stdin?.end();
    await Promise.all(
      this.others.map(
        (child) => child.exitCode ?? new Promise((resolve) => child.once("exit", resolve)),
      ),
    );
    rmSync(this.folder, { recursive: true });
  }
}
