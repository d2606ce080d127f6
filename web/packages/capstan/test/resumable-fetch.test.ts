// AG-UI's own clients, both lines, through cuts at every kind of position: exact text, and no error
// of their verifiers.
import { HttpAgent as HttpAgent1 } from "@ag-ui/client";
import { HttpAgent as HttpAgent0 } from "@ag-ui/client-0";
import { afterEach, expect, test, vi } from "vitest";

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { CAPConnectionError } from "../src/errors.js";
import type { Notice } from "../src/notice.js";
import { resumableFetch } from "../src/resumable-fetch.js";
import { type Handler, serve, STREAM, type TestServer } from "./server.js";

const QUICK = { backoff: { first: 1, max: 5 } };
const WORDS = Array.from({ length: 40 }, (_, n) => `word${n}-ü🦀 `);
const TEXT = WORDS.join("");

let server: TestServer | undefined;
afterEach(async () => {
  vi.restoreAllMocks();
  await server?.close();
  server = undefined;
});

/** The events of a run, with ids like the gateway's. */
function events(runId: string, threadId: string): { id: string; data: string }[] {
  const all: object[] = [
    { type: "RUN_STARTED", threadId, runId },
    { type: "TEXT_MESSAGE_START", messageId: "m1", role: "assistant" },
    ...WORDS.map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta })),
    { type: "TEXT_MESSAGE_END", messageId: "m1" },
    { type: "RUN_FINISHED", threadId, runId },
  ];
  return all.map((event, n) => ({ id: `${STREAM}:${n}.1`, data: JSON.stringify(event) }));
}

/** Serves a run, resumes after Last-Event-ID, and cuts each connection after some bytes. */
function cutting(bytes: () => number, withIds = true): Handler {
  return (response, { headers, body }) => {
    const { runId, threadId } = JSON.parse(body);
    const all = events(runId, threadId);
    const after = all.findIndex(({ id }) => id === headers["last-event-id"]);
    const frames = all
      .slice(after + 1)
      .map(({ id, data }) => `${withIds ? `id: ${id}\n` : ""}data: ${data}\n\n`);
    const raw = Buffer.from(`retry: 1\n: hello\n${frames.join("")}`);
    const limit = bytes();
    if (limit < 0) return void response.destroy();
    response.writeHead(200, { "content-type": "text/event-stream" });
    if (limit >= raw.length) return void response.end(raw);
    response.write(raw.subarray(0, limit), () => response.destroy());
  };
}

/** Cuts that depend only on the seed. Some come before the head, and none repeats forever. */
function chaos(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1103515245 + 12345) % 2 ** 31;
    return state % 7 === 0 ? -1 : 120 + (state % 1500);
  };
}

const lines = [
  ["1.0.0", HttpAgent1],
  ["0.0.59", HttpAgent0],
] as const;

test.each(lines)("HttpAgent %s gets the exact text through chaos", async (_, HttpAgent) => {
  const complaints = vi.spyOn(console, "error").mockImplementation(() => {});
  const warnings = vi.spyOn(console, "warn").mockImplementation(() => {});
  const run = async (seed: number) => {
    const server = await serve(cutting(chaos(seed)));
    const agent = new HttpAgent({
      url: server.url,
      threadId: "t",
      fetch: resumableFetch({ ...QUICK, maxRetries: 20 }),
    });
    agent.addMessage({ id: "u1", role: "user", content: "hi" });
    const { newMessages } = await agent.runAgent({ runId: `r${seed}` });
    expect(newMessages.map(({ content }) => content)).toEqual([TEXT]);
    expect(new Set(server.seen.map(({ body }) => body)).size, "the same bytes each time").toBe(1);
    await server.close();
    return server.seen.length;
  };
  const seeds = process.env["CAPSTAN_SOAK"] ? 50 : 4;
  const requests = await Promise.all(Array.from({ length: seeds }, (_, n) => run(n + 1)));
  expect(Math.min(...requests)).toBeGreaterThan(2);
  expect(complaints.mock.calls).toEqual([]);
  expect(warnings.mock.calls).toEqual([]);
});

test.each(lines)("HttpAgent %s is stopped at once by its own abort", async (_, HttpAgent) => {
  server = await serve((response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const [started] = events("r", "t");
    response.write(`id: ${started?.id}\ndata: ${started?.data}\n\n`);
  });
  const agent = new HttpAgent({ url: server.url, threadId: "t", fetch: resumableFetch(QUICK) });
  agent.subscribe({ onRunStartedEvent: () => agent.abortRun() });
  await agent.runAgent({ runId: "r" }).catch(() => {});
  expect(server.seen).toHaveLength(1);
});

test("what a server repeats is dropped, by its ids", async () => {
  let isFirst = true;
  const again: Handler = (response, seen) => {
    // A server without cursors starts over each time.
    const fresh = { ...seen, headers: {} };
    const limit = isFirst ? 2000 : 1e9;
    isFirst = false;
    return cutting(() => limit)(response, fresh);
  };
  server = await serve(again);
  const notices: Notice[] = [];
  const fetch = resumableFetch({ ...QUICK, onNotice: (notice) => notices.push(notice) });
  const agent = new HttpAgent1({ url: server.url, threadId: "t", fetch });
  const { newMessages } = await agent.runAgent({ runId: "r" });
  expect(newMessages[0]?.content).toBe(TEXT);
  expect(notices.some(({ type }) => type === "duplicate")).toBe(true);
});

test("without ids the cut is the client's to see", async () => {
  server = await serve(cutting(() => 400, false));
  const response = await resumableFetch(QUICK)(server.url, {
    method: "POST",
    body: JSON.stringify({ runId: "r", threadId: "t" }),
  });
  await expect(response.text()).rejects.toThrow();
  expect(server.seen).toHaveLength(1);
});

test("a first request that fails is not sent again where that is not safe", async () => {
  server = await serve((response) => void response.destroy());
  await expect(
    resumableFetch({ ...QUICK, retryFirst: false })(server.url, { method: "POST", body: "{}" }),
  ).rejects.toThrow();
  expect(server.seen).toHaveLength(1);
});

test("refusals are handed over as they are, at first", async () => {
  server = await serve(
    (response) =>
      void response.writeHead(401, { "content-type": "application/problem+json" }).end("{}"),
  );
  const response = await resumableFetch(QUICK)(server.url, { method: "POST", body: "{}" });
  expect([response.status, server.seen.length]).toEqual([401, 1]);
});

test("a deploy in mid-stream passes, a stream that is gone does not", async () => {
  const answers = [503, 502, 410];
  let isFirst = true;
  server = await serve((response, seen) => {
    if (!isFirst) return void response.writeHead(answers.shift() ?? 410).end();
    isFirst = false;
    return cutting(() => 300)(response, seen);
  });
  const response = await resumableFetch(QUICK)(server.url, {
    method: "POST",
    body: JSON.stringify({ runId: "r", threadId: "t" }),
  });
  await expect(response.text()).rejects.toThrow("status 410");
  expect(server.seen).toHaveLength(4);
});

test("opaque ids that start over are dropped up to the last one", async () => {
  const words = Array.from({ length: 9 }, (_, n) => `w${n}`);
  const bodies = [
    words.slice(0, 4),
    words.slice(0, 6),
    words.slice(6, 7),
    [...words.slice(0, 9), "end"],
  ];
  const data = (word: string) =>
    JSON.stringify(
      word === "end" ? { type: "RUN_FINISHED" } : { type: "TEXT_MESSAGE_CONTENT", delta: word },
    );
  const fetch = async () =>
    new Response(
      (bodies.shift() ?? []).map((word) => `id: opaque-${word}\ndata: ${data(word)}\n\n`).join(""),
      { headers: { "content-type": "text/event-stream" } },
    );
  const response = await resumableFetch({ ...QUICK, fetch })("http://test", {
    method: "POST",
    body: "{}",
  });
  expect([...(await response.text()).matchAll(/"delta":"(w\d)"/g)].map(([, word]) => word)).toEqual(
    words,
  );
});

test("what is kept does not grow with the number of events", { timeout: 60_000 }, async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const heap = () => (collect(), process.memoryUsage().heapUsed);
  const [batch, batches] = [1_000, 60];
  let n = 0;
  const encoder = new TextEncoder();
  const source = new ReadableStream<Uint8Array>({
    pull(controller) {
      const frames = Array.from(
        { length: batch },
        () => `id: ${STREAM}:${(n += 1)}.1\ndata: {"type":"TEXT_MESSAGE_CONTENT"}\n\n`,
      );
      controller.enqueue(encoder.encode(frames.join("")));
    },
  });
  const fetch = async () =>
    new Response(source, { headers: { "content-type": "text/event-stream" } });
  const response = await resumableFetch({ fetch })("http://test", { method: "POST", body: "{}" });
  const reader = response.body!.getReader();
  let before = 0;
  for (let events = 0; events < batch * batches; events += 1) {
    await reader.read();
    if (events === 10 * batch) before = heap();
  }
  // A set of all ids took some 150 bytes each: 7 MB.
  expect(heap() - before).toBeLessThan(3 * 1024 * 1024);
  await reader.cancel();
});

/**
 * A server that shuts down in mid-run, reports it, and restarts: the run continues at the client's
 * cursor.
 */
function deploying(severity: string, retry_after: number, before: object[] = []): Handler {
  let requests = 0;
  return (response, { headers, body }) => {
    const { runId, threadId } = JSON.parse(body);
    const all = events(runId, threadId);
    requests += 1;
    response.writeHead(200, { "content-type": "text/event-stream" });
    const frame = ({ id, data }: { id: string; data: string }) => `id: ${id}\ndata: ${data}\n\n`;
    if (requests > 1) {
      const after = all.findIndex(({ id }) => id === headers["last-event-id"]);
      // The error is history now, and has its own position.
      const failed = {
        id: `${STREAM}:20.1`,
        data: JSON.stringify({ type: "CUSTOM", name: "capstan.attempt_failed", value: {} }),
      };
      const rest = all
        .slice(after + 1)
        .map(({ data }, n) => ({ id: `${STREAM}:${21 + n}.1`, data }));
      return void response.end([failed, ...rest].map(frame).join(""));
    }
    const capstan = {
      kind: "run_interrupted",
      severity,
      code: "SERVICE_UNAVAILABLE",
      message: "The server stopped.",
      http_status: 503,
      retry_after,
      details: {},
    };
    const error = {
      type: "RUN_ERROR",
      code: "SERVICE_UNAVAILABLE",
      message: "The server stopped.",
      metadata: { capstan },
    };
    const end = [...before, error].map((event, n) => ({
      id: `${STREAM}:20.${n + 2}`,
      data: JSON.stringify(event),
    }));
    response.end([...all.slice(0, 20), ...end].map(frame).join(""));
  };
}

test.each(lines)(
  "HttpAgent %s does not hear of a deploy in mid-run: the run goes on",
  async (_, HttpAgent) => {
    const complaints = [vi.spyOn(console, "error"), vi.spyOn(console, "warn")];
    server = await serve(deploying("TRANSIENT", 0));
    const notices: Notice[] = [];
    const agent = new HttpAgent({
      url: server.url,
      threadId: "t",
      fetch: resumableFetch({ ...QUICK, onNotice: (notice) => notices.push(notice) }),
    });
    const seen: string[] = [];
    agent.subscribe({ onEvent: ({ event }) => void seen.push(event.type) });
    const { newMessages } = await agent.runAgent({ runId: "r" });
    expect(newMessages.map(({ content }) => content)).toEqual([TEXT]);
    expect(seen.filter((type) => type.startsWith("RUN_"))).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
    expect(server.seen.map(({ headers }) => headers["last-event-id"])).toEqual([
      undefined,
      `${STREAM}:19.1`,
    ]);
    expect(notices).toContainEqual(
      expect.objectContaining({
        type: "retrying",
        because: "TRANSIENT run_interrupted: The server stopped.",
      }),
    );
    for (const complaint of complaints) expect(complaint.mock.calls).toEqual([]);
  },
);

test.each([
  ["no attempt is left", deploying("FATAL", 0), {}],
  ["its wait is too long to sleep through", deploying("TRANSIENT", 31), {}],
  [
    "the agent has a part of that end already",
    deploying("TRANSIENT", 0, [{ type: "TEXT_MESSAGE_END", messageId: "m1" }]),
    {},
  ],
  ["it comes too often", deploying("TRANSIENT", 0), { maxRetries: 0 }],
])("an interruption is an error if %s", async (_, handler, options) => {
  server = await serve(handler);
  const response = await resumableFetch({ ...QUICK, ...options })(server.url, {
    method: "POST",
    body: JSON.stringify({ runId: "r", threadId: "t" }),
  });
  expect(await response.text()).toContain("RUN_ERROR");
  expect(server.seen).toHaveLength(1);
});

test("a cursor among the headers is where it begins", async () => {
  server = await serve(cutting(() => 1e9));
  const notices: Notice[] = [];
  const fetch = resumableFetch({ ...QUICK, onNotice: (notice) => notices.push(notice) });
  const response = await fetch(server.url, {
    method: "POST",
    headers: { "last-event-id": `${STREAM}:41.1` },
    body: JSON.stringify({ runId: "r", threadId: "t" }),
  });
  const types = [...(await response.text()).matchAll(/"type":"(\w+)"/g)].map(([, type]) => type);
  expect(types).toEqual(["TEXT_MESSAGE_END", "RUN_FINISHED"]);
  expect(notices[1]).toEqual({ type: "resumed", cursor: `${STREAM}:41.1` });
});

test("of a refusal only the beginning is handed over", async () => {
  server = await serve((response) => void response.writeHead(500).end("x".repeat(1e6)));
  const response = await resumableFetch(QUICK)(server.url, { method: "POST", body: "{}" });
  expect([response.status, (await response.text()).length]).toEqual([500, 64 * 1024]);
});

test("a dead line is told with its address, a redirect with where it leads", async () => {
  server = await serve(
    (response) => void response.writeHead(307, { location: "https://elsewhere.example/" }).end(),
  );
  await expect(resumableFetch(QUICK)(server.url, { method: "POST", body: "{}" })).rejects.toThrow(
    "redirected to https://elsewhere.example, which is not followed",
  );
  expect(server.seen).toHaveLength(1);
  await server.close();
  const error = await resumableFetch({ ...QUICK, maxRetries: 1 })(server.url, {
    method: "POST",
    body: "{}",
  }).catch((error: unknown) => error);
  expect(error).toBeInstanceOf(CAPConnectionError);
  expect((error as Error).message).toMatch(
    new RegExp(`^no connection to ${server.url}: fetch failed: connect ECONNREFUSED`),
  );
  server = undefined;
});

test("one event per connection does not extend an agent's deadline", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  let n = 0;
  const fetch = async () =>
    new Response(`id: ${STREAM}:${(n += 1)}.1\ndata: {"type":"TEXT_MESSAGE_CONTENT"}\n\n`, {
      headers: { "content-type": "text/event-stream" },
    });
  const response = await resumableFetch({ fetch, deadline: 60_000, backoff: { jitter: false } })(
    "http://test",
    { method: "POST" },
  );
  const read = response.text().catch((error: unknown) => error);
  for (let second = 0; second < 70; second += 1) await vi.advanceTimersByTimeAsync(1_000);
  vi.useRealTimers();
  expect(await read).toMatchObject({
    name: "CAPConnectionError",
    deadline: 60_000,
    address: "http://test",
  });
  expect(n).toBeGreaterThan(50);
});

test("an address relative to a page is asked for, and named, as a whole", async () => {
  vi.stubGlobal("location", { href: "http://127.0.0.1:9/app/" });
  const asked: string[] = [];
  const fetch = async (url: string) => {
    asked.push(url);
    throw new TypeError("Failed to fetch");
  };
  const call = resumableFetch({ fetch, retryFirst: false })("/v1/ag-ui", { method: "POST" });
  await expect(call).rejects.toThrow("no connection to http://127.0.0.1:9: Failed to fetch");
  expect(asked).toEqual(["http://127.0.0.1:9/v1/ag-ui"]);
  vi.unstubAllGlobals();
});
