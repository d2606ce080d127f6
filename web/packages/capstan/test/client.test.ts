// The client over real sockets: it heals, stops, waits and fails as the contract says.
import { afterEach, expect, test } from "vitest";

import { CapClient } from "../src/client.js";
import { CAPConnectionError, CAPProtocolError, CAPRuntimeError } from "../src/errors.js";
import type { Notice } from "../src/notice.js";
import { frame, type Handler, openStream, serve, STREAM, type TestServer } from "./server.js";

const QUICK = { backoff: { first: 1, max: 5 } };
let server: TestServer;

afterEach(() => server.close());

/** Answers the n-th request with the n-th handler, the last one from then on. */
function inTurn(...handlers: Handler[]): Handler {
  let at = 0;
  return (response, seen) => handlers[Math.min(at++, handlers.length - 1)]?.(response, seen);
}

const whole: Handler = (response) => {
  openStream(response);
  response.end(frame(1, "DELTA", "Hel") + frame(2, "DELTA", "lo") + frame(3, "CLOSE", { reason: "completed", usage: { tokens: 2 } }));
};

test("chat yields text and knows its conversation at once", async () => {
  server = await serve(whole);
  const chat = new CapClient(server.url, "sk_1", QUICK).chat("hi");
  expect(chat.conversationId).toMatch(/^[0-9a-f-]{36}$/);
  const pieces = [];
  for await (const piece of chat) pieces.push(piece);
  expect(pieces).toEqual(["Hel", "lo"]);
  expect([chat.text, chat.reason, chat.usage, chat.streamId]).toEqual(["Hello", "completed", { tokens: 2 }, STREAM]);
  const [sent] = server.seen;
  expect(sent).toMatchObject({ method: "POST", path: "/assist" });
  expect(sent?.headers).toMatchObject({ authorization: "Bearer sk_1", "x-cap-accept": "stream_reset" });
  expect(sent?.headers["x-request-id"]).toBe(JSON.parse(sent?.body ?? "").request_id);
});

test("a cut in the middle of a frame is healed with the same bytes and the right cursor", async () => {
  const cut: Handler = (response) => {
    openStream(response);
    const begun = `retry: 1\nid: ${STREAM}:0\n\n${frame(1, "DELTA", "Hel")}${frame(2, "DELTA", "lo").slice(0, 60)}`;
    response.write(begun, () => response.destroy());
  };
  const rest: Handler = (response) => {
    openStream(response);
    response.end(frame(1, "DELTA", "Hel") + frame(2, "DELTA", "lo") + frame(3, "CLOSE", "completed"));
  };
  server = await serve(inTurn(cut, rest));
  const notices: Notice[] = [];
  const client = new CapClient(server.url, "", { ...QUICK, onNotice: (notice) => notices.push(notice) });
  expect(await client.chat("hi").collect()).toBe("Hello");
  expect(server.seen.map(({ headers }) => headers["last-event-id"])).toEqual([undefined, `${STREAM}:1`]);
  expect(server.seen[1]?.body).toBe(server.seen[0]?.body);
  expect(notices.map(({ type }) => type)).toEqual(["connecting", "connected", "retrying", "connecting", "resumed", "duplicate"]);
});

test("a refusal on the first connection is thrown at once, with its problem", async () => {
  server = await serve((response) => {
    response.writeHead(429, { "content-type": "application/problem+json", "retry-after": "7" });
    response.end(JSON.stringify({ code: "rate_limit_exceeded", title: "Too many requests", detail: "Slow.", retryable: true, severity: "TRANSIENT" }));
  });
  const error = await new CapClient(server.url).chat("hi").next().catch((e: unknown) => e);
  expect(error).toBeInstanceOf(CAPRuntimeError);
  expect(error).toMatchObject({ status: 429, code: "rate_limit_exceeded", retryAfter: 7, isRetryable: true, message: "Slow." });
});

test("nobody there is a connection error after the retries", async () => {
  server = await serve((response) => void response.destroy());
  const error = await new CapClient(server.url, "", { ...QUICK, maxRetries: 2 }).chat("hi").next().catch((e: unknown) => e);
  expect(error).toBeInstanceOf(CAPConnectionError);
  expect(error).toMatchObject({ retries: 2 });
  expect(server.seen).toHaveLength(3);
});

test("a page instead of a stream is a protocol error", async () => {
  server = await serve((response) => void response.writeHead(200, { "content-type": "text/html" }).end("<p>hi"));
  await expect(new CapClient(server.url).chat("hi").next()).rejects.toBeInstanceOf(CAPProtocolError);
});

test("silence is an interruption", async () => {
  const silent: Handler = (response) => {
    openStream(response);
    response.write(frame(1, "DELTA", "Hel"));
  };
  server = await serve(inTurn(silent, whole));
  expect(await new CapClient(server.url, "", { ...QUICK, readTimeout: 60 }).chat("hi").collect()).toBe("Hello");
});

test("aborting ends the call with the signal's reason, wherever it stands", async () => {
  const silent: Handler = (response) => {
    openStream(response);
    response.write(frame(1, "DELTA", "Hel"));
  };
  server = await serve(silent);
  const stop = new AbortController();
  const chat = new CapClient(server.url, "", QUICK).chat("hi", { signal: stop.signal });
  expect(await chat.next()).toBe("Hel");
  const waiting = expect(chat.next()).rejects.toThrow("enough");
  stop.abort(new Error("enough"));
  await waiting;
  expect(server.seen).toHaveLength(1);
});

test("leaving the loop closes the connection", async () => {
  let closed: () => void;
  const isClosed = new Promise<void>((resolve) => (closed = resolve));
  server = await serve((response) => {
    response.on("close", () => closed());
    openStream(response);
    response.write(frame(1, "DELTA", "a") + frame(2, "DELTA", "b"));
  });
  for await (const piece of new CapClient(server.url).chat("hi")) if (piece === "a") break;
  await isClosed;
});

test("a stream_reset is an error in text mode and applied when collected", async () => {
  const reset = { id: "1", timestamp: "2026-02-03T10:15:37Z", type: "stream_reset", data: { attempt: 2, after_seq: 1 } };
  server = await serve((response) => {
    openStream(response);
    response.end(frame(1, "DELTA", "a") + frame(2, "DELTA", "b") + frame(3, "EVENT", reset) + frame(4, "DELTA", "c") + frame(5, "CLOSE", "completed"));
  });
  const client = new CapClient(server.url);
  expect(await client.chat("hi").collect()).toBe("ac");
  const pieces: string[] = [];
  const read = async () => {
    for await (const piece of client.chat("hi")) pieces.push(piece);
  };
  await expect(read()).rejects.toMatchObject({ code: "stream_reset" });
  expect(pieces).toEqual(["a", "b"]);
});

test("a failure keeps the text that came before it", async () => {
  server = await serve((response) => {
    openStream(response);
    const error = { code: "content_refused", message: "No.", severity: "FATAL" };
    response.end(frame(1, "DELTA", "Well") + frame(2, "ERROR", error) + frame(3, "CLOSE", "failed"));
  });
  await expect(new CapClient(server.url).chat("hi").collect()).rejects.toMatchObject({ partialText: "Well", code: "content_refused" });
});

test("attach, stop, health and ask use their own routes", async () => {
  server = await serve((response, { method, path }) => {
    if (path.startsWith("/v1/streams/") && method === "GET") return whole(response, server.seen[0]!);
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ status: "ok" }));
  });
  const client = new CapClient(`${server.url}/`, "sk");
  const packets = [];
  for await (const packet of client.attach(`${STREAM}:0`)) packets.push(packet.seq);
  expect(packets).toEqual([1, 2, 3]);
  await client.stop(STREAM);
  expect((await client.health()).status).toBe("ok");
  await client.ask(client.question("0192f3a4-0000-7000-8000-000000000000", "hi"));
  const paths = server.seen.map(({ method, path }) => `${method} ${path}`);
  expect(paths).toEqual([`GET /v1/streams/${STREAM}`, `DELETE /v1/streams/${STREAM}`, "GET /health", "POST /assist"]);
  expect(server.seen[3]?.headers.accept).toBe("application/json");
});

test("profile v2 is asked and read in its own words", async () => {
  server = await serve((response) => {
    openStream(response);
    const line = (seq: number, op: string, p: unknown) => `id: ${STREAM}:${seq}\ndata: ${JSON.stringify({ op, p })}\n\n`;
    response.end(line(1, "delta", "Hi") + line(2, "close", null));
  });
  const chat = new CapClient(server.url, "", { profile: "v2" }).chat("hi");
  expect([await chat.collect(), chat.reason]).toEqual(["Hi", "completed"]);
  expect(JSON.parse(server.seen[0]!.body).payload.query).toBe("hi");
});

test("a base URL that is none is refused with what was expected", async () => {
  server = await serve(whole);
  expect(() => new CapClient("localhost:8787")).toThrow("expected http://host:port");
});
