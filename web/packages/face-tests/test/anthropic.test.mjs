// Anthropic's published SDK against the real binary: answers, tools, failures by class, its
// retries, models, counts, and a model that thinks behind a provider that breaks.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";

import { startGateway } from "../../../testing/gateway.mjs";

const clientFor = (url, options = {}) =>
  new Anthropic({ apiKey: "sk-local", baseURL: url, ...options });
const asked = (text, more = {}) => ({
  model: "demo",
  max_tokens: 1024,
  messages: [{ role: "user", content: text }],
  ...more,
});
const textOf = (message) =>
  message.content.map((block) => (block.type === "text" ? block.text : "")).join("");

async function runsOf(url) {
  const response = await fetch(`${url}/v1/streams?limit=1000`);
  return (await response.json()).streams;
}

describe("Anthropic's SDK", { concurrency: false, timeout: 60_000 }, () => {
  let gateway, client;
  before(async () => {
    gateway = await startGateway();
    client = clientFor(gateway.url);
  });
  after(() => gateway.stop());

  test("a message, whole and streamed", async () => {
    const whole = await client.messages.create(asked("/echo one two three"));
    assert.equal(textOf(whole), "one two three");
    assert.deepEqual([whole.stop_reason, whole.model], ["end_turn", "demo"]);
    for (const command of ["/echo one two three", "/tokens 50", "/events", "/warn", "/flaky 1"]) {
      const stream = client.messages.stream(asked(command));
      let text = "";
      stream.on("text", (piece) => (text += piece));
      const final = await stream.finalMessage();
      assert.equal(textOf(final), text, command);
      assert.ok(text.length > 0, command);
      assert.ok(final.usage.output_tokens > 0, command);
    }
  });

  test("the models are the agents, and tokens are counted", async () => {
    const models = [];
    for await (const model of client.models.list()) models.push(model.id);
    assert.deepEqual(models, ["demo"]);
    assert.equal((await client.models.retrieve("demo")).type, "model");
    await assert.rejects(client.models.retrieve("gpt-9"), Anthropic.NotFoundError);
    const { input_tokens } = await client.messages.countTokens({
      model: "demo",
      messages: [{ role: "user", content: "word ".repeat(80) }],
    });
    assert.ok(input_tokens >= 100);
  });

  test("a failure has its class, and is tried again where that may help", async () => {
    for (const [fault, kind, tries] of [
      ["context_length_exceeded", Anthropic.BadRequestError, 1],
      ["agent_execution_error", Anthropic.InternalServerError, 1],
      ["service_unavailable", Anthropic.InternalServerError, 3],
    ]) {
      const before = (await runsOf(gateway.url)).length;
      await assert.rejects(client.messages.create(asked(`/fault ${fault} --after 0`)), (error) => {
        assert.ok(error instanceof kind, `${fault}: ${error}`);
        assert.ok(error.requestID, fault);
        return true;
      });
      assert.equal((await runsOf(gateway.url)).length, before + tries, fault);
    }
    // After the first word, a failure is an event and never looks like an answer.
    await assert.rejects(
      client.messages.stream(asked("/fault upstream_error")).finalMessage(),
      Anthropic.APIError,
    );
  });

  test("what is wrong with a request is named", async () => {
    await assert.rejects(
      client.messages.create(asked("x", { model: "gpt-9" })),
      Anthropic.NotFoundError,
    );
    const tools = [{ type: "web_search_20250305", name: "web_search" }];
    await assert.rejects(client.messages.create(asked("x", { tools })), /tools\[0\]\.type/);
  });

  test("a run that was stopped is no answer", async () => {
    const stream = client.messages.stream(asked("/tokens 1000 --delay 20ms"));
    await new Promise((resolve) => stream.once("text", resolve));
    const [run] = await runsOf(gateway.url);
    // It fails while the stop is answered, so a handler must exist by then.
    const stopped = assert.rejects(stream.finalMessage(), /was stopped/);
    await fetch(`${gateway.url}/v1/streams/${run.stream_id}`, { method: "DELETE" });
    await stopped;
  });
});
