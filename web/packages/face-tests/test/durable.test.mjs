// The published client of Durable Streams reads runs of the real binary: caught up, by long
// polls, live; from any offset.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";

import { createDurableChatTransport } from "@durable-streams/aisdk-transport";
import { stream } from "@durable-streams/client";

import { startGateway } from "../../../testing/gateway.mjs";
import { answers, chatAt, sdks, textOf as saidBy, tokens, until } from "../support/chat.mjs";

const textOf = (packets) =>
  packets
    .filter((packet) => packet.op === "DELTA")
    .map((packet) => packet.p)
    .join("");

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

  /** Starts a run in AG-UI and leaves at once. Returns the address of its stream. */
  async function begin(text) {
    const input = {
      threadId: randomUUID(),
      runId: randomUUID(),
      state: {},
      messages: [{ id: "u", role: "user", content: text }],
      tools: [],
      context: [],
    };
    const response = await fetch(gateway.endpoint, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(input),
    });
    await response.body.cancel();
    return `${gateway.url}/v1/durable/${response.headers.get("x-stream-id")}`;
  }

  for (const live of [true, "long-poll", "sse"]) {
    test(`a run under way is read to its end (live: ${live})`, async () => {
      const url = await begin("/tokens 100 --delay 5ms");
      const packets = await itemsOf({ url, offset: "-1", live });
      assert.equal(textOf(packets), tokens(100));
      assert.deepEqual(
        packets.map((packet) => packet.seq),
        packets.map((_, at) => at + 1),
        "each once, in order",
      );
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
    assert.deepEqual(
      packets.slice(-2).map((packet) => packet.op),
      ["ERROR", "CLOSE"],
    );
    assert.equal(packets.at(-2).p.severity, "FATAL");
  });

  test("chunks of a UI message are items as well", async () => {
    const url = await begin("/tokens 5");
    const chunks = await itemsOf({ url: `${url}?face=ai-sdk`, offset: "-1", live: "sse" });
    assert.deepEqual([chunks[0].type, chunks.at(-1).type], ["start", "finish"]);
    assert.equal(
      chunks
        .filter((chunk) => chunk.type === "text-delta")
        .map((chunk) => chunk.delta)
        .join(""),
      tokens(5),
    );
  });

  test("the AI SDK's chat reads its message again after a reload", async () => {
    const [{ sdk }] = sdks;
    const api = `${gateway.url}/v1/ai-sdk/chat`;
    const transport = () =>
      createDurableChatTransport({ api, headers: { prefer: "respond-async" } });
    const id = randomUUID();
    const chat = chatAt(sdk, api, { id, transport: transport() });
    const sent = chat.sendMessage({ text: "/tokens 60 --delay 5ms" });
    await until(() => answers(chat).length > 0 && saidBy(answers(chat)[0]).includes("tok10 "));
    // Another page of the same chat, as after a reload: it has the question, and resumes the
    // answer.
    const again = chatAt(sdk, api, {
      id,
      messages: chat.messages.slice(0, 1),
      transport: transport(),
    });
    await again.resumeStream();
    await sent;
    for (const one of [chat, again]) {
      assert.equal(one.status, "ready");
      assert.deepEqual(answers(one).map(saidBy), [tokens(60)]);
    }
    assert.equal(answers(again)[0].id, answers(chat)[0].id);
    const failing = chatAt(sdk, api, { transport: transport() });
    await failing.sendMessage({ text: "/fault content_refused" });
    assert.equal(failing.status, "error");
  });

  test("chunks are read on at any offset, each once", async () => {
    const url = `${await begin("/tokens 12")}?face=ai-sdk`;
    const whole = await stream({ url, offset: "-1", live: "sse" });
    const parts = [];
    await new Promise((resolve) =>
      whole.subscribeJson((batch) => void (parts.push(batch), batch.streamClosed && resolve())),
    );
    const all = parts.flatMap((batch) => batch.items);
    let [seen, offset] = [[], "-1"];
    for (const batch of parts) {
      assert.deepEqual(await itemsOf({ url, offset, live: "sse" }), all.slice(seen.length));
      [seen, offset] = [[...seen, ...batch.items], batch.offset];
    }
    assert.deepEqual(seen, all);
  });

  test("an unknown stream is told at once", async () => {
    await assert.rejects(
      stream({ url: `${gateway.url}/v1/durable/${randomUUID()}`, offset: "-1", live: true }),
      (error) => error.status === 404,
    );
  });
});
