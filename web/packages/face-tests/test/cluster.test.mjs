// Clients of other protocols at three gateways over one PostgreSQL. The gateway that runs the
// answer is killed. The clients resume at another one and get every word once. Only in the soak,
// because leases end in real time.
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";

import { startCluster } from "../../../testing/cluster.mjs";
import { COMPLETED, clientAt, fold, message, readToTheEnd, transports } from "../support/a2a.mjs";
import { answers, chatAt, sdks, textOf, tokens, until } from "../support/chat.mjs";
import { readFrom } from "../support/durable.mjs";

const WORDS = 300;
const LONG = `/tokens ${WORDS} --delay 10ms`;
const skip = process.env.CAPSTAN_SOAK ? false : "soak: needs CAPSTAN_SOAK, and scripts/postgres";

describe("soak: three gateways, one killed", { skip, concurrency: false, timeout: 240_000 }, () => {
  /** Three gateways for a test that kills one. */
  const clusterFor = async (t) => {
    const cluster = await startCluster();
    t.after(cluster.stop);
    return cluster;
  };

  test("a chat of the AI SDK comes back and is whole", async (t) => {
    const cluster = await clusterFor(t);
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

  for (const [name, Transport] of Object.entries(transports)) {
    test(`a task of A2A is subscribed to again and is whole (${name})`, async (t) => {
      const cluster = await clusterFor(t);
      const client = await clientAt(cluster.url, Transport);
      let [watching, killing] = [];
      const seen = await readToTheEnd(client, message(LONG), async ({ artifact, id }) => {
        // Over a connection of its own, to another gateway.
        if (artifact.includes("tok10 "))
          watching ??= fold(client.resubscribeTask({ tenant: "", id }));
        if (artifact.includes("tok20 ")) await (killing ??= cluster.killOwnerOf(id));
      });
      assert.deepEqual([seen.artifact, seen.states.at(-1)], [tokens(WORDS), COMPLETED]);
      const watched = await watching;
      assert.deepEqual(
        [watched.artifact, watched.states.at(-1)],
        [tokens(WORDS), COMPLETED],
        "whoever watches elsewhere notices nothing",
      );
      assert.ok(killing !== undefined);
    });
  }

  test("Anthropic's SDK repeats a request, and it is billed once", async (t) => {
    const cluster = await clusterFor(t);
    const runs = async () => (await (await fetch(`${cluster.url}/v1/streams`)).json()).streams;
    const client = new Anthropic({ apiKey: "sk-local", baseURL: cluster.url });
    const messages = [{ role: "user", content: LONG }];
    const answer = client.messages.create({ model: "demo", max_tokens: 1024, messages });
    await until(async () => (await runs())[0]?.state === "running");
    await cluster.killOwnerOf((await runs())[0].stream_id);
    assert.equal((await answer).content[0].text, tokens(WORDS));
    assert.equal((await runs()).length, 1);
  });

  for (const live of ["sse", "long-poll"]) {
    test(`a reader of Durable Streams goes on at its offset (${live})`, async (t) => {
      const cluster = await clusterFor(t);
      const body = JSON.stringify({
        message: { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text: LONG }] },
        configuration: { returnImmediately: true },
      });
      const begun = await fetch(`${cluster.url}/v1/a2a/message:send`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body,
      });
      const id = begun.headers.get("x-stream-id");
      let [items, offset, killing, error] = [[], "-1"];
      const kill = async (more) => {
        if (items.length + more.length > 20) await (killing ??= cluster.killOwnerOf(id));
      };
      do {
        const rest = await readFrom(`${cluster.url}/v1/durable/${id}`, offset, {
          live,
          onItems: kill,
        });
        items = [...items, ...rest.items];
        ({ offset, error } = rest);
        assert.ok(error === undefined || killing !== undefined, error);
      } while (error !== undefined);
      assert.equal(
        items
          .filter((packet) => packet.op === "DELTA")
          .map((packet) => packet.p)
          .join(""),
        tokens(WORDS),
      );
      assert.deepEqual(
        items.map((packet) => packet.seq),
        [...new Set(items.map((packet) => packet.seq))],
        "each once",
      );
    });
  }
});
