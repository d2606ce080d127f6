// @ts-nocheck: tests of several packages use this file unchanged.
// Several gateways over one PostgreSQL, behind a balancer that knows which gateways are live. For
// `scripts/postgres`, which names the server in CAPSTAN_TEST_POSTGRES.
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createServer, connect } from "node:net";

import { startGateway } from "./gateway.mjs";

const server = process.env["CAPSTAN_TEST_POSTGRES"];
/** Leases of one second, so that a dead gateway is noticed soon. */
const CONFIG = "[cluster]\nlease = 1\n[timeouts]\nbackoff = 0.001\n";

/** @param {string} url @param {string} statement */
function sql(url, statement) {
  return execFileSync(
    "psql",
    [
      "--no-psqlrc",
      "--quiet",
      "--tuples-only",
      "--no-align",
      "--dbname",
      url,
      "--command",
      statement,
    ],
    { encoding: "utf8" },
  ).trim();
}

/**
 * Several gateways over one database, one of which can be killed.
 * @param {{ count?: number, config?: string, env?: Record<string, string> }} [options]
 */
export async function startCluster({ count = 3, config = "", env = {} } = {}) {
  if (server === undefined) throw new Error("scripts/postgres starts the server that this needs");
  const name = `web_${randomUUID().replaceAll("-", "")}`;
  sql(server, `create database ${name}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  const gateways = await Promise.all(
    Array.from({ length: count }, (_, at) =>
      startGateway({
        config: CONFIG + config,
        journal: url.href,
        env: { ...env, HOSTNAME: `gateway-${at + 1}` },
      }),
    ),
  );
  const balancer = await startBalancer(gateways);
  /** Kills the gateway that owns a stream: `kill -9`. */
  const killOwnerOf = async (/** @type {string} */ stream) => {
    const owner = sql(
      url.href,
      "select p.name from capstan.runs r join capstan.replicas p on p.id = r.owner " +
        `where r.stream = '${stream}'`,
    );
    const served = await Promise.all(
      balancer
        .living()
        .map(async (one) => [one, (await fetch(`${one.url}/health`)).headers.get("x-served-by")]),
    );
    const [found] = served.find(([, name]) => name === owner) ?? [];
    if (found === undefined) throw new Error(`no gateway works on ${stream}`);
    balancer.leave(found);
    await found.stop();
  };
  const stop = async () => {
    balancer.stop();
    await Promise.all(balancer.living().map((one) => one.stop()));
  };
  return { url: balancer.url, killOwnerOf, stop };
}

/** Distributes connections over the live gateways. */
async function startBalancer(gateways) {
  let [next, living] = [0, [...gateways]];
  const sockets = new Set();
  const listener = createServer((incoming) => {
    const { hostname, port } = new URL(living[next++ % living.length].url);
    const outgoing = connect(Number(port), hostname);
    for (const socket of [incoming, outgoing]) {
      sockets.add(socket);
      socket.on("close", () => sockets.delete(socket));
    }
    incoming.on("error", () => outgoing.destroy());
    outgoing.on("error", () => incoming.destroy());
    incoming.on("close", () => outgoing.destroy());
    // Like a killed gateway, this resets its connections.
    outgoing.on("close", () => incoming.destroy());
    incoming.pipe(outgoing).pipe(incoming, { end: false });
  });
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${listener.address().port}`,
    living: () => living,
    leave: (one) => void (living = living.filter((other) => other !== one)),
    stop: () => {
      listener.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
