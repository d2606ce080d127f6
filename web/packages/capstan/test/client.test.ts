// The client over real sockets: it resumes, stops, waits and fails by the contract.
import { afterEach, expect, test, vi } from "vitest";

import { CapClient } from "../src/client.js";
import { CAPConnectionError, CAPProtocolError, CAPRuntimeError } from "../src/errors.js";
import type { Notice } from "../src/notice.js";
import { frame, type Handler, openStream, serve, STREAM, type TestServer } from "./server.js";

const QUICK = { backoff: { first: 1, max: 5 } };
let server: TestServer | undefined;
const more: TestServer[] = [];

afterEach(async () => {
  vi.restoreAllMocks();
  await Promise.all([server, ...more.splice(0)].map((each) => each?.close()));
  server = undefined;
});

/** Answers the n-th request with the n-th handler, the last one from then on. */
function inTurn(...handlers: Handler[]): Handler {
  let at = 0;
  return (response, seen) => handlers[Math.min(at++, handlers.length - 1)]?.(response, seen);
}

const whole: Handler = (response) => {
  openStream(response);
  response.end(
    frame(1, "DELTA", "Hel") +
      frame(2, "DELTA", "lo") +
      frame(3, "CLOSE", { reason: "completed", usage: { tokens: 2 } }),
  );
};

test("chat yields text and knows its conversation at once", async () => {
  server = await serve(whole);
  const chat = new CapClient(server.url, "sk_1", QUICK).chat("hi");
  expect(chat.conversationId).toMatch(/^[0-9a-f-]{36}$/);
  const pieces = [];
  for await (const piece of chat) pieces.push(piece);
  expect(pieces).toEqual(["Hel", "lo"]);
  expect([chat.text, chat.reason, chat.usage, chat.streamId]).toEqual([
    "Hello",
    "completed",
    { tokens: 2 },
    STREAM,
  ]);
  const [sent] = server.seen;
  expect(sent).toMatchObject({ method: "POST", path: "/assist" });
  expect(sent?.headers).toMatchObject({
    authorization: "Bearer sk_1",
    "x-cap-accept": "stream_reset",
  });
  expect(sent?.headers["x-request-id"]).toBe(JSON.parse(sent?.body ?? "").request_id);
});

test("a cut within a frame is healed with the same bytes and cursor", async () => {
  const cut: Handler = (response) => {
    openStream(response);
    const half = frame(2, "DELTA", "lo").slice(0, 60);
    const begun = `retry: 1\nid: ${STREAM}:0\n\n${frame(1, "DELTA", "Hel")}${half}`;
    response.write(begun, () => response.destroy());
  };
  const rest: Handler = (response) => {
    openStream(response);
    response.end(
      frame(1, "DELTA", "Hel") + frame(2, "DELTA", "lo") + frame(3, "CLOSE", "completed"),
    );
  };
  server = await serve(inTurn(cut, rest));
  const notices: Notice[] = [];
  const client = new CapClient(server.url, "", {
    ...QUICK,
    onNotice: (notice) => notices.push(notice),
  });
  expect(await client.chat("hi").collect()).toBe("Hello");
  expect(server.seen.map(({ headers }) => headers["last-event-id"])).toEqual([
    undefined,
    `${STREAM}:1`,
  ]);
  expect(server.seen[1]?.body).toBe(server.seen[0]?.body);
  expect(notices.map(({ type }) => type)).toEqual([
    "connecting",
    "connected",
    "retrying",
    "connecting",
    "resumed",
    "duplicate",
  ]);
});

test("a refusal on the first connection is thrown at once, with its problem", async () => {
  server = await serve((response) => {
    response.writeHead(429, { "content-type": "application/problem+json", "retry-after": "7" });
    response.end(
      JSON.stringify({
        code: "rate_limit_exceeded",
        title: "Too many requests",
        detail: "Slow.",
        retryable: true,
        severity: "TRANSIENT",
      }),
    );
  });
  const error = await new CapClient(server.url)
    .chat("hi")
    .next()
    .catch((e: unknown) => e);
  expect(error).toBeInstanceOf(CAPRuntimeError);
  expect(error).toMatchObject({
    status: 429,
    code: "rate_limit_exceeded",
    retryAfter: 7,
    isRetryable: true,
    message: "Slow.",
  });
});

test("nobody there is a connection error after the retries", async () => {
  server = await serve((response) => void response.destroy());
  const error = await new CapClient(server.url, "", { ...QUICK, maxRetries: 2 })
    .chat("hi")
    .next()
    .catch((e: unknown) => e);
  expect(error).toBeInstanceOf(CAPConnectionError);
  expect(error).toMatchObject({ retries: 2 });
  expect(server.seen).toHaveLength(3);
});

test("a page instead of a stream is a protocol error", async () => {
  server = await serve(
    (response) => void response.writeHead(200, { "content-type": "text/html" }).end("<p>hi"),
  );
  await expect(new CapClient(server.url).chat("hi").next()).rejects.toBeInstanceOf(
    CAPProtocolError,
  );
});

test("silence is an interruption", async () => {
  const silent: Handler = (response) => {
    openStream(response);
    response.write(frame(1, "DELTA", "Hel"));
  };
  server = await serve(inTurn(silent, whole));
  expect(
    await new CapClient(server.url, "", { ...QUICK, readTimeout: 60 }).chat("hi").collect(),
  ).toBe("Hello");
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
  const reset = {
    id: "1",
    timestamp: "2026-02-03T10:15:37Z",
    type: "stream_reset",
    data: { attempt: 2, after_seq: 1 },
  };
  server = await serve((response) => {
    openStream(response);
    response.end(
      frame(1, "DELTA", "a") +
        frame(2, "DELTA", "b") +
        frame(3, "EVENT", reset) +
        frame(4, "DELTA", "c") +
        frame(5, "CLOSE", "completed"),
    );
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
    response.end(
      frame(1, "DELTA", "Well") + frame(2, "ERROR", error) + frame(3, "CLOSE", "failed"),
    );
  });
  await expect(new CapClient(server.url).chat("hi").collect()).rejects.toMatchObject({
    partialText: "Well",
    code: "content_refused",
  });
});

test("an error as JSON has its code and its message", () => {
  const error = { code: "content_refused", message: "No.", severity: "FATAL" } as const;
  const failed = new CAPRuntimeError({ error, retryAfter: 7, partialText: "Well" });
  expect(JSON.parse(JSON.stringify(failed))).toEqual({
    name: "CAPRuntimeError",
    code: "content_refused",
    message: "No.",
    severity: "FATAL",
    retryAfter: 7,
    partialText: "Well",
    error,
  });
  const lost = new CAPConnectionError("refused", 2, { cause: "a secret", address: "http://a" });
  const told = { name: "CAPConnectionError", why: "refused", retries: 2, isRetryable: true };
  const all = { ...told, message: lost.message, address: "http://a" };
  expect(JSON.parse(JSON.stringify({ lost }))).toEqual({ lost: all });
});

test("attach, stop, health and ask use their own routes", async () => {
  server = await serve((response, { method, path }) => {
    if (path.startsWith("/v1/streams/") && method === "GET")
      return whole(response, server!.seen[0]!);
    response
      .writeHead(200, { "content-type": "application/json" })
      .end(JSON.stringify({ status: "ok" }));
  });
  const client = new CapClient(`${server.url}/`, "sk");
  const packets = [];
  for await (const packet of client.attach(`${STREAM}:0`)) packets.push(packet.seq);
  expect(packets).toEqual([1, 2, 3]);
  await client.stop(STREAM);
  expect((await client.health()).status).toBe("ok");
  await client.ask(client.question("0192f3a4-0000-7000-8000-000000000000", "hi"));
  const paths = server.seen.map(({ method, path }) => `${method} ${path}`);
  expect(paths).toEqual([
    `GET /v1/streams/${STREAM}`,
    `DELETE /v1/streams/${STREAM}`,
    "GET /health",
    "POST /assist",
  ]);
  expect(server.seen[3]?.headers.accept).toBe("application/json");
});

test("profile v2 is asked and read in its own words", async () => {
  server = await serve((response) => {
    openStream(response);
    const line = (seq: number, op: string, p: unknown) =>
      `id: ${STREAM}:${seq}\ndata: ${JSON.stringify({ op, p })}\n\n`;
    response.end(line(1, "delta", "Hi") + line(2, "close", null));
  });
  const chat = new CapClient(server.url, "", { profile: "v2" }).chat("hi");
  expect([await chat.collect(), chat.reason]).toEqual(["Hi", "completed"]);
  expect(JSON.parse(server.seen[0]!.body).payload.query).toBe("hi");
});

test("a base URL that is none is refused with what was expected", async () => {
  server = await serve(whole);
  expect(() => new CapClient("localhost:8787")).toThrow("expected http://host:port");
  expect(() => new CapClient("http://user:secret@localhost:8787")).toThrow(
    /^base URL: a user or a password in it is not sent; the key is an argument of its own$/,
  );
});

const failureOf = (call: Promise<unknown>) =>
  call.then<undefined, Error>(
    () => undefined,
    (error: unknown) => error as Error,
  );

test("a connection error names the address, the cause and the remedy, and no secret", async () => {
  const closed = await serve(whole);
  await closed.close();
  const { port } = new URL(closed.url);
  const client = new CapClient(`http://127.0.0.1:${port}/base?token=secret`, "sk_secret", {
    ...QUICK,
    maxRetries: 1,
  });
  for (const call of [
    () => client.chat("hi").collect(),
    () => client.ask(client.question("c", "hi")),
  ]) {
    const error = await failureOf(call());
    expect(error).toBeInstanceOf(CAPConnectionError);
    expect(error?.message).toBe(
      `no connection to http://127.0.0.1:${port}: fetch failed: ` +
        `connect ECONNREFUSED 127.0.0.1:${port} (tried again once); ` +
        `check the address and the network, or try again later`,
    );
  }
  const error = await failureOf(client.health());
  expect(error).toMatchObject({ address: `http://127.0.0.1:${port}`, retries: 0 });
});

test("a name with two addresses that refuse both says so", async () => {
  const closed = await serve(whole);
  await closed.close();
  const { port } = new URL(closed.url);
  const error = await failureOf(new CapClient(`http://localhost:${port}`).health());
  expect(error?.message).toContain(`no connection to http://localhost:${port}: fetch failed`);
  expect(error?.message).toContain(`ECONNREFUSED 127.0.0.1:${port}`);
});

test.each([301, 302, 303, 307, 308])(
  "a redirect with %i to another origin is not followed, and not tried again",
  async (status) => {
    const other = await serve(whole);
    more.push(other);
    server = await serve(
      (response) =>
        void response.writeHead(status, { location: `${other.url}/assist?token=secret` }).end(),
    );
    const client = new CapClient(server.url, "sk", QUICK);
    const calls = [
      () => client.chat("a secret").collect(),
      () => client.ask(client.question("c", "a secret")),
      () => client.health(),
      () => client.attach(`${STREAM}:0`).next(),
    ];
    for (const call of calls) {
      const error = await failureOf(call());
      expect(error).toBeInstanceOf(CAPProtocolError);
      expect(error?.message).toContain(
        `status ${status}: redirected to ${other.url}, which is not followed`,
      );
      expect(error?.message).not.toContain("token");
    }
    expect(other.seen).toEqual([]);
    expect(server.seen).toHaveLength(4);
  },
);

test("a redirect that a browser hides is none that is followed", async () => {
  const hidden = Object.defineProperties(new Response(null), {
    type: { value: "opaqueredirect" },
    status: { value: 0 },
  });
  const sent: RequestInit[] = [];
  const fetch = async (_: string, init: RequestInit) => (sent.push(init), hidden);
  const error = await failureOf(new CapClient("http://test", "", { fetch }).chat("hi").collect());
  expect(error?.message).toMatch(/^redirected, which is not followed/);
  expect(sent.map(({ redirect }) => redirect)).toEqual(["manual"]);
});

test("a redirect within the origin is followed with the same bytes, but not for ever", async () => {
  server = await serve((response, { path }) => {
    if (path === "/assist") return void response.writeHead(307, { location: "/v2/assist" }).end();
    if (path === "/loop") return void response.writeHead(308, { location: "/loop" }).end();
    return whole(response, server!.seen[0]!);
  });
  expect(await new CapClient(server.url).chat("hi").collect()).toBe("Hello");
  expect(server.seen.map(({ path }) => path)).toEqual(["/assist", "/v2/assist"]);
  expect(server.seen[1]?.body).toBe(server.seen[0]?.body);
  const error = await failureOf(
    new CapClient(server.url, "", { path: "/loop" }).chat("hi").collect(),
  );
  expect(error).toBeInstanceOf(CAPProtocolError);
  expect(server.seen).toHaveLength(2 + 11);
});

/** A refusal that never ends. Its size is known when its connection is closed. */
function endless(): { handler: Handler; taken: Promise<number> } {
  let tell: (bytes: number) => void;
  const taken = new Promise<number>((resolve) => (tell = resolve));
  const handler: Handler = (response) => {
    response.writeHead(500, { "content-type": "application/problem+json" });
    const chunk = Buffer.alloc(64 * 1024, "x");
    let bytes = 0;
    const more = () => {
      while (!response.destroyed && response.write(chunk)) bytes += chunk.length;
      bytes += chunk.length;
    };
    response.on("drain", more).on("close", () => tell(bytes));
    more();
  };
  return { handler, taken };
}

test.each(["assist", "ask"] as const)(
  "%s reads the beginning of a refusal and no more",
  async (call) => {
    const { handler, taken } = endless();
    server = await serve(handler);
    const client = new CapClient(server.url, "", QUICK);
    const request = client.question("c", "hi");
    const error = await failureOf(
      call === "ask" ? client.ask(request) : client.assist(request).next(),
    );
    expect(error).toBeInstanceOf(CAPRuntimeError);
    expect(error).toMatchObject({ status: 500 });
    // At most the buffers of the two sockets.
    expect(await taken).toBeLessThan(32 * 1024 * 1024);
  },
);

test("a WARNING is logged, in chat and in assist, and told to listeners", async () => {
  const warning = {
    code: "upstream_timeout",
    message: "One of two sources is slow.",
    severity: "WARNING",
  };
  server = await serve((response) => {
    openStream(response);
    response.end(
      frame(1, "DELTA", "Well") + frame(2, "ERROR", warning) + frame(3, "CLOSE", "completed"),
    );
  });
  const logged = vi.spyOn(console, "warn").mockImplementation(() => {});
  expect(await new CapClient(server.url).chat("hi").collect()).toBe("Well");
  expect(logged.mock.calls).toEqual([
    ["the agent warns: WARNING upstream_timeout: One of two sources is slow."],
  ]);

  const warn = vi.fn();
  const notices: string[] = [];
  const client = new CapClient(server.url, "", {
    warn,
    onNotice: ({ type }) => notices.push(type),
  });
  const ops = [];
  for await (const { op } of client.assist(client.question("c", "hi"))) ops.push(op);
  expect(ops).toEqual(["DELTA", "ERROR", "CLOSE"]);
  expect(warn).toHaveBeenCalledOnce();
  expect(notices).toContain("warning");
  expect(logged).toHaveBeenCalledOnce();
});

/** The test controls the time. */
async function timed<T>(call: () => Promise<T>, step: number, steps: number): Promise<T | Error> {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  try {
    const result = call().catch((error: Error) => error);
    for (let n = 0; n < steps; n += 1) await vi.advanceTimersByTimeAsync(step);
    return await result;
  } finally {
    vi.useRealTimers();
  }
}

test("one packet per connection does not extend a call's deadline", async () => {
  let seq = 0;
  const fetch = async () =>
    new Response(frame(++seq, "DELTA", "a"), { headers: { "content-type": "text/event-stream" } });
  const client = new CapClient("http://test", "", {
    fetch,
    deadline: 60_000,
    backoff: { jitter: false },
  });
  const error = await timed(() => client.chat("hi").collect(), 1_000, 70);
  expect(error).toBeInstanceOf(CAPConnectionError);
  expect(error).toMatchObject({ deadline: 60_000, address: "http://test" });
  expect((error as Error).message).toMatch(
    /^http:\/\/test: not done within the deadline of 60 s.*; a run that has started continues/,
  );
  expect(seq).toBeGreaterThan(50);
});

test.each(["chat", "ask", "health", "stop"] as const)(
  "a deadline ends %s while the server is silent",
  async (name) => {
    const fetch = (_: string, init: RequestInit) =>
      new Promise<Response>((_, reject) =>
        init.signal?.addEventListener("abort", () => reject(init.signal?.reason)),
      );
    const client = new CapClient("http://test", "", { fetch, deadline: 5_000 });
    const calls = {
      chat: () => client.chat("hi").collect(),
      ask: () => client.ask(client.question("c", "hi")),
      health: () => client.health(),
      stop: () => client.stop(STREAM),
    };
    expect(await timed<unknown>(calls[name], 500, 11)).toMatchObject({
      name: "CAPConnectionError",
      deadline: 5_000,
    });
  },
);

test("ask waits for as long as a run may take, and health does not", async () => {
  const fetch = (_: string, init: RequestInit) =>
    new Promise<Response>((resolve, reject) => {
      init.signal?.addEventListener("abort", () => reject(init.signal?.reason));
      setTimeout(() => resolve(new Response('{"output":{}}')), 50 * 60_000);
    });
  const client = new CapClient("http://test", "", { fetch });
  expect(await timed(() => client.ask(client.question("c", "hi")), 60_000, 51)).toEqual({
    output: {},
  });
  expect(await timed(() => client.health(), 60_000, 2)).toMatchObject({
    message: expect.stringContaining("no connection to http://test: no answer within 60 s"),
  });
  const late = await timed(
    () =>
      new CapClient("http://test", "", { fetch, askTimeout: 60_000 }).ask(
        client.question("c", "hi"),
      ),
    60_000,
    2,
  );
  expect(late).toMatchObject({ name: "CAPConnectionError", retries: 0 });
});
