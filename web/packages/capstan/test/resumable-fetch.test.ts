// AG-UI's own clients, both lines, through cuts at every kind of place: exact text, no complaint of their verifiers.
import { HttpAgent as HttpAgent1 } from "@ag-ui/client";
import { HttpAgent as HttpAgent0 } from "@ag-ui/client-0";
import { afterEach, expect, test, vi } from "vitest";

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

/** The events of a run, ids as the gateway gives them. */
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
    const frames = all.slice(after + 1).map(({ id, data }) => `${withIds ? `id: ${id}\n` : ""}data: ${data}\n\n`);
    const raw = Buffer.from(`retry: 1\n: hello\n${frames.join("")}`);
    const limit = bytes();
    if (limit < 0) return void response.destroy();
    response.writeHead(200, { "content-type": "text/event-stream" });
    if (limit >= raw.length) return void response.end(raw);
    response.write(raw.subarray(0, limit), () => response.destroy());
  };
}

/** Cuts that depend on nothing but the seed; some come before the head, none is so short for ever. */
function chaos(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1103515245 + 12345) % 2 ** 31;
    return (state % 7 === 0 ? -1 : 120 + (state % 1500));
  };
}

const lines = [["1.0.0", HttpAgent1], ["0.0.59", HttpAgent0]] as const;

test.each(lines)("HttpAgent %s gets the exact text through chaos", async (_, HttpAgent) => {
  const complaints = vi.spyOn(console, "error").mockImplementation(() => {});
  const warnings = vi.spyOn(console, "warn").mockImplementation(() => {});
  const run = async (seed: number) => {
    const server = await serve(cutting(chaos(seed)));
    const agent = new HttpAgent({ url: server.url, threadId: "t", fetch: resumableFetch({ ...QUICK, maxRetries: 20 }) });
    agent.addMessage({ id: "u1", role: "user", content: "hi" });
    const { newMessages } = await agent.runAgent({ runId: `r${seed}` });
    expect(newMessages.map(({ content }) => content)).toEqual([TEXT]);
    expect(new Set(server.seen.map(({ body }) => body)).size, "the same bytes each time").toBe(1);
    await server.close();
    return server.seen.length;
  };
  const requests = await Promise.all(Array.from({ length: 12 }, (_, n) => run(n + 1)));
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
    // A server that knows no cursors starts over each time.
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
  const response = await resumableFetch(QUICK)(server.url, { method: "POST", body: JSON.stringify({ runId: "r", threadId: "t" }) });
  await expect(response.text()).rejects.toThrow();
  expect(server.seen).toHaveLength(1);
});

test("a first request that fails is not sent again where that is not safe", async () => {
  server = await serve((response) => void response.destroy());
  await expect(resumableFetch({ ...QUICK, retryFirst: false })(server.url, { method: "POST", body: "{}" })).rejects.toThrow();
  expect(server.seen).toHaveLength(1);
});

test("refusals are handed over as they are, at first", async () => {
  server = await serve((response) => void response.writeHead(401, { "content-type": "application/problem+json" }).end("{}"));
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
  const response = await resumableFetch(QUICK)(server.url, { method: "POST", body: JSON.stringify({ runId: "r", threadId: "t" }) });
  await expect(response.text()).rejects.toThrow("status 410");
  expect(server.seen).toHaveLength(4);
});
