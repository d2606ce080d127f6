// A small HTTP server for tests: the next handler answers each request. Cuts are real.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Seen {
  method: string;
  path: string;
  headers: IncomingMessage["headers"];
  body: string;
}

export type Handler = (response: ServerResponse, seen: Seen) => void | Promise<void>;

export interface TestServer {
  url: string;
  seen: Seen[];
  close: () => Promise<void>;
}

/** Answers with `handler` until it is closed. */
export async function serve(handler: Handler): Promise<TestServer> {
  const seen: Seen[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const entry = {
      method: request.method ?? "",
      path: request.url ?? "",
      headers: request.headers,
      body,
    };
    seen.push(entry);
    await handler(response, entry);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const close = () =>
    new Promise<void>((resolve) => {
      server.closeAllConnections();
      server.close(() => resolve());
    });
  return { url: `http://127.0.0.1:${port}`, seen, close };
}

export function openStream(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "text/event-stream", "x-stream-id": STREAM });
}

export const STREAM = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

/** A frame in the gateway's form. */
export function frame(seq: number, op: string, p: unknown): string {
  const packet = { stream_id: STREAM, seq, op, t: "2026-02-03T10:15:37Z", p };
  return `event: stream.packet\nid: ${STREAM}:${seq}\ndata: ${JSON.stringify(packet)}\n\n`;
}
