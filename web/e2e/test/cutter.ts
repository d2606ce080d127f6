// A proxy that cuts each connection after some bytes of the answer, as a bad network would.
import { createServer, connect, type AddressInfo } from "node:net";

export interface Cutter {
  url: string;
  /** Connections so far. */
  count: () => number;
  close: () => void;
}

/** Forwards to `target`; `budget` says after how many bytes the next connection is cut. */
export async function startCutter(target: string, budget: () => number): Promise<Cutter> {
  const { hostname, port } = new URL(target);
  let connections = 0;
  const server = createServer((client) => {
    connections += 1;
    let left = budget();
    const upstream = connect(Number(port), hostname);
    client.on("error", () => upstream.destroy()).on("close", () => upstream.destroy());
    upstream.on("error", () => client.destroy()).on("close", () => client.end());
    client.pipe(upstream);
    upstream.on("data", (chunk) => {
      client.write(chunk.toString("latin1", 0, Math.max(0, left)), "latin1");
      left -= chunk.length;
      if (left <= 0) client.resetAndDestroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${address.port}`, count: () => connections, close: () => server.close() };
}
