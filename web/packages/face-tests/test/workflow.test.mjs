// The AI SDK's transport that counts chunks: it names no chat, resumes its run automatically, and
// retries forever if a stream has no `finish`.
import assert from "node:assert/strict";
import { after, before, describe, mock, test } from "node:test";

import { WorkflowChatTransport } from "@ai-sdk/workflow/client";

import { startGateway } from "../../../testing/gateway.mjs";
import { startCutter } from "../../ag-ui-tests/support/cutter.mjs";
import { chatAt, sdks, textOf, tokens, until } from "../support/chat.mjs";

const WORDS = 12;
const LONG = `/tokens ${WORDS} --delay 1ms`;
/** The id is known to this page only. */
const chatId = "a-chat";
const [{ sdk }] = sdks;

const said = (text) => [{ id: "m1", role: "user", parts: [{ type: "text", text }] }];

/** All chunks of a stream, as the transport returns them. */
async function read(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

/** A transport at a server, with its requests and the run's id that it received. */
function transportAt(url, options = {}) {
  const seen = { requests: [], run: undefined };
  const transport = new WorkflowChatTransport({
    api: `${url}/v1/ai-sdk/chat`,
    fetch: (input, init) => {
      seen.requests.push(`${init?.method ?? "GET"} ${String(input).replace(url, "")}`);
      return fetch(input, init);
    },
    onChatSendMessage: (response) => void (seen.run = response.headers.get("x-workflow-run-id")),
    ...options,
  });
  const ask = async (text) =>
    read(await transport.sendMessages({ chatId, messages: said(text), trigger: "submit-message" }));
  return Object.assign(seen, { transport, ask });
}

const typesOf = (chunks) => chunks.map((chunk) => chunk.type);
const spoken = (chunks) =>
  chunks.map((chunk) => (chunk.type === "text-delta" ? chunk.delta : "")).join("");

describe("WorkflowChatTransport", { concurrency: true, timeout: 120_000 }, () => {
  let gateway;
  // It logs each cut to the console.
  before(async () => {
    mock.method(console, "error", () => {});
    gateway = await startGateway();
  });
  after(() => gateway.stop());

  test("an answer that is cut after any chunk is the same, chunk by chunk", async (t) => {
    const whole = await transportAt(gateway.url).ask(LONG);
    assert.equal(spoken(whole), tokens(WORDS));
    for (let cut = 1; cut < whole.length; cut++) {
      // Cut once more after the first chunk of the rest.
      const cutter = await startCutter(gateway.url, (nth) => [cut, 1][nth]);
      t.after(cutter.stop);
      const seen = transportAt(cutter.url);
      const chunks = await seen.ask(LONG);
      assert.deepEqual(typesOf(chunks), typesOf(whole), `cut after ${cut}`);
      assert.equal(spoken(chunks), tokens(WORDS), `cut after ${cut}`);
      const from = (index) => `GET /v1/ai-sdk/chat/${seen.run}/stream?startIndex=${index}`;
      // A client with the `finish` needs nothing more.
      const back = [from(cut), from(cut + 1)].slice(0, whole.length - cut);
      assert.deepEqual(seen.requests, ["POST /v1/ai-sdk/chat", ...back], `cut after ${cut}`);
    }
  });

  test("a run that fails or is stopped ends, and nobody comes back for it", async () => {
    const failing = transportAt(gateway.url);
    const failed = typesOf(await failing.ask("/fault rate_limit_exceeded"));
    assert.deepEqual(failed.slice(-3), ["data-capstan-error", "error", "finish"]);
    assert.equal(failing.requests.length, 1);

    const hanging = transportAt(gateway.url);
    const stopped = hanging.ask("/hang");
    await until(() => hanging.run);
    const place = `${gateway.url}/v1/ai-sdk/chat/${hanging.run}/stream`;
    assert.equal((await fetch(place, { method: "DELETE" })).status, 204);
    assert.deepEqual(typesOf(await stopped).slice(-2), ["abort", "finish"]);
    assert.equal(hanging.requests.length, 1);
  });

  test("a failed run that is cut before its end ends as well", async (t) => {
    const whole = typesOf(await transportAt(gateway.url).ask("/fault rate_limit_exceeded"));
    for (let cut = 1; cut < whole.length; cut++) {
      const cutter = await startCutter(gateway.url, (nth) => [cut][nth]);
      t.after(cutter.stop);
      const seen = transportAt(cutter.url);
      assert.deepEqual(typesOf(await seen.ask("/fault rate_limit_exceeded")), whole);
      assert.equal(seen.requests.length, 2, `cut after ${cut}`);
    }
  });

  test("the last chunks are read by a place before the end, through a cut as well", async (t) => {
    const first = transportAt(gateway.url);
    const whole = await first.ask(LONG);
    for (const [index, cut] of [
      [-4, undefined],
      [-4, 2],
      [-1000, 3],
    ]) {
      const cutter = await startCutter(gateway.url, (nth) => [cut][nth]);
      t.after(cutter.stop);
      const seen = transportAt(cutter.url);
      const rest = await seen.transport.reconnectToStream({ chatId: first.run, startIndex: index });
      const expected = typesOf(whole.slice(index));
      // It omits the end of a part whose begin it did not receive.
      const known = index === -4 ? expected.filter((type) => type !== "text-end") : expected;
      assert.deepEqual(typesOf(await read(rest)), known, `from ${index}, cut after ${cut}`);
      assert.equal(seen.requests.length, cut === undefined ? 1 : 2);
    }
  });

  test("two pages that say the same have a run each, and a chat goes on", async () => {
    const [one, other] = [transportAt(gateway.url), transportAt(gateway.url)];
    await Promise.all([one.ask("/echo Hi"), other.ask("/echo Hi")]);
    assert.notEqual(one.run, other.run);
    const chat = chatAt(sdk, "", { transport: one.transport });
    await chat.sendMessage({ text: "/echo One" });
    await chat.sendMessage({ text: "/echo Two" });
    assert.deepEqual(chat.messages.map(textOf), ["/echo One", "One", "/echo Two", "Two"]);
  });

  test("what is not there is refused, and not asked for again", async () => {
    const seen = transportAt(gateway.url);
    await assert.rejects(async () => {
      await read(await seen.transport.reconnectToStream({ chatId: "nobody" }));
    }, /Failed to fetch chat/);
    assert.equal(seen.requests.length, 1);
    const run = transportAt(gateway.url);
    await run.ask("/echo Hi");
    const place = `${gateway.url}/v1/ai-sdk/chat/${run.run}/stream?startIndex=soon`;
    const refused = await fetch(place);
    assert.deepEqual([refused.status, /startIndex/.test(await refused.text())], [400, true]);
  });
});
