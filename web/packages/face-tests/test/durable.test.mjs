// The published client of Durable Streams reads runs of the real binary: caught up, by long polls, live; from any offset.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";

import { stream } from "@durable-streams/client";

import { startGateway } from "../../../testing/gateway.mjs";
import { tokens } from "../support/chat.mjs";

const textOf = (packets) => packets.filter((packet) => packet.op === "DELTA").map((packet) => packet.p).join("");

/** All items until the stream is closed. */
async function itemsOf(options) {
  const items = [];
  for await (const item of (await stream(options)).jsonStream()) items.push(item);
  return items;
}

describe("Durable Streams", { concurrency: true, timeout: 60_000 }, () => {
  let gateway;
  before(async () => (gateway = await startGateway()));
  after(() => gateway.stop());

  /** Starts a run in AG-UI and leaves at once; returns where its stream is read. */
  async function begin(text) {
    const input = { threadId: randomUUID(), runId: randomUUID(), state: {}, messages: [{ id: "u", role: "user", content: text }], tools: [], context: [] };
    const response = await fetch(gateway.endpoint, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(input) });
    await response.body.cancel();
    return `${gateway.url}/v1/durable/${response.headers.get("x-stream-id")}`;
  }

  for (const live of [true, "long-poll", "sse"]) {
    test(`a run under way is read to its end (live: ${live})`, async () => {
      const url = await begin("/tokens 100 --delay 5ms");
      const packets = await itemsOf({ url, offset: "-1", live });
      assert.equal(textOf(packets), tokens(100));
      assert.deepEqual(packets.map((packet) => packet.seq), packets.map((_, at) => at + 1), "each once, in order");
      assert.equal(packets.at(-1).op, "CLOSE");
    });
  }

  test("a reader goes on at the offset where it stood", async () => {
    const url = await begin("/tokens 30");
    const all = await itemsOf({ url, offset: "-1", live: true });
    for (const at of [1, 7, 20, all.length - 1]) {
      const offset = String(at).padStart(20, "0");
      const rest = await itemsOf({ url, offset, live: "sse" });
      assert.deepEqual(rest, all.slice(at));
    }
  });

  test("a run that failed says so in its items and is closed", async () => {
    const url = await begin("/fault content_refused");
    const packets = await itemsOf({ url, offset: "-1", live: true });
    assert.deepEqual(packets.slice(-2).map((packet) => packet.op), ["ERROR", "CLOSE"]);
    assert.equal(packets.at(-2).p.severity, "FATAL");
  });

  test("chunks of a UI message are items as well", async () => {
    const url = await begin("/tokens 5");
    const chunks = await itemsOf({ url: `${url}?face=ai-sdk`, offset: "-1", live: "sse" });
    assert.deepEqual([chunks[0].type, chunks.at(-1).type], ["start", "finish"]);
    assert.equal(chunks.filter((chunk) => chunk.type === "text-delta").map((chunk) => chunk.delta).join(""), tokens(5));
  });

  test("an unknown stream is told at once", async () => {
    await assert.rejects(stream({ url: `${gateway.url}/v1/durable/${randomUUID()}`, offset: "-1", live: true }), (error) => error.status === 404);
  });
});
