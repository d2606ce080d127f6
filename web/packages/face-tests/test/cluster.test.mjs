// The published clients at three gateways over one PostgreSQL, of which the one that works is killed in the middle of an answer. Each reads on
// in its protocol's own way, somewhere else, and has every word once. In the soak alone: leases end in real time.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";

import { ClientFactory } from "@a2a-js/sdk/client";
import { stream } from "@durable-streams/client";

import { hasPostgres, startCluster } from "../../../testing/cluster.mjs";
import { answers, chatAt, sdks, textOf, tokens, until } from "../support/chat.mjs";

const WORDS = 300;
const LONG = `/tokens ${WORDS} --delay 10ms`;
const skip = process.env.CAPSTAN_SOAK && hasPostgres ? false : "soak: needs CAPSTAN_SOAK, and scripts/postgres";

describe("three gateways, one killed", { skip, concurrency: false, timeout: 120_000 }, () => {
  let cluster;
  before(async () => (cluster = await startCluster(4)));
  after(() => cluster?.stop());

  test("a chat of the AI SDK comes back and is whole", async () => {
    const [{ sdk }] = sdks;
    let id;
    const noting = async (...args) => {
      const response = await fetch(...args);
      id ??= response.headers.get("x-stream-id");
      return response;
    };
    const chat = chatAt(sdk, `${cluster.url}/v1/ai-sdk/chat`, { fetch: noting });
    const sent = chat.sendMessage({ text: LONG });
    await until(() => answers(chat).length > 0 && textOf(answers(chat)[0]).includes("tok20 "));
    await cluster.killOwnerOf(id);
    await sent;
    assert.equal(chat.status, "error");
    while (chat.status === "error") await chat.resumeStream();
    assert.equal(chat.status, "ready");
    assert.deepEqual(answers(chat).map(textOf), [tokens(WORDS)]);
  });

  test("a task of A2A is subscribed to elsewhere and is whole", async () => {
    const client = await new ClientFactory().createFromUrl(cluster.url);
    const part = { content: { $case: "text", value: LONG }, metadata: undefined, filename: "", mediaType: "" };
    const message = { messageId: randomUUID(), contextId: "", taskId: "", role: 1, parts: [part], metadata: undefined, extensions: [], referenceTaskIds: [] };
    const seen = { text: "", id: undefined, state: undefined };
    const take = async (events, onText) => {
      for await (const event of events) {
        const { $case, value } = event.payload ?? event;
        const said = (parts) => parts.map((p) => (p.content?.$case === "text" ? p.content.value : "")).join("");
        if ($case === "task") [seen.id, seen.text] = [value.id, value.artifacts.map((artifact) => said(artifact.parts)).join("")];
        else if ($case === "artifactUpdate") seen.text = (value.append ? seen.text : "") + said(value.artifact.parts);
        else seen.state = value.status.state;
        await onText?.();
      }
    };
    let isKilled = false;
    await assert.rejects(
      take(client.sendMessageStream({ tenant: "", message, configuration: undefined, metadata: undefined }), async () => {
        if (!isKilled && seen.text.includes("tok20 ")) {
          isKilled = true;
          await cluster.killOwnerOf(seen.id);
        }
      }),
    );
    for (let tries = 0; seen.state !== 3 && tries < 20; tries += 1) {
      // Whoever comes too late for a subscription is told so, and gets the task.
      await take(client.subscribeToTask({ tenant: "", id: seen.id })).catch(() => {});
      const task = await client.getTask({ tenant: "", id: seen.id });
      if (task.status.state === 3) seen.state = 3;
    }
    assert.equal(seen.text, tokens(WORDS));
  });

  test("a reader of Durable Streams goes on elsewhere and has each packet once", async () => {
    const begun = await fetch(`${cluster.url}/v1/ai-sdk/chat`, {
      method: "POST", headers: { "content-type": "application/json", prefer: "respond-async" },
      body: JSON.stringify({ id: randomUUID(), messages: [{ id: "u", role: "user", parts: [{ type: "text", text: LONG }] }] }),
    });
    assert.equal(begun.status, 202);
    const id = begun.headers.get("x-stream-id");
    const packets = [];
    let isKilled = false;
    for await (const packet of (await stream({ url: `${cluster.url}/v1/durable/${id}`, offset: "-1", live: "long-poll" })).jsonStream()) {
      packets.push(packet);
      if (!isKilled && packet.seq >= 20) {
        isKilled = true;
        await cluster.killOwnerOf(id);
      }
    }
    assert.deepEqual(packets.map((packet) => packet.seq), packets.map((_, at) => at + 1));
    assert.equal(packets.filter((packet) => packet.op === "DELTA").map((packet) => packet.p).join(""), tokens(WORDS));
  });
});
