// Answers: collected, streamed, through the helpers, with tools, in the background, stopped.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { startGateway } from "../../../testing/gateway.mjs";
import { providers, startProvider } from "../../ag-ui-tests/support/providers.mjs";
import { chat, clientFor, deltasOf, drain, runsOf, textOf } from "../support/openai.mjs";

describe("answers", { concurrency: true }, () => {
  let gateway, client;
  before(async () => {
    gateway = await startGateway();
    client = clientFor(gateway.url);
  });
  after(() => gateway.stop());

  test("the models are the agents", async () => {
    const models = await client.models.list();
    assert.deepEqual(
      models.data.map((model) => model.id),
      ["demo"],
    );
    assert.equal((await client.models.retrieve("demo")).object, "model");
  });

  test("a chat, whole and streamed", async () => {
    const whole = await client.chat.completions.create(chat("/echo one two three"));
    assert.equal(whole.choices[0].message.content, "one two three");
    const { events, error } = await drain(
      await client.chat.completions.create(
        chat("/echo one two three", { stream: true, stream_options: { include_usage: true } }),
      ),
    );
    assert.equal(error, undefined);
    assert.equal(textOf(events), "one two three");
    assert.deepEqual(events.at(-1).usage, whole.usage);
    const final = await client.chat.completions
      .stream(chat("/echo one two three"))
      .finalChatCompletion();
    assert.deepEqual(final.choices[0].message.content, "one two three");
  });

  test("a response, whole and streamed", async () => {
    const whole = await client.responses.create({ model: "demo", input: "/echo one two three" });
    assert.deepEqual([whole.output_text, whole.status], ["one two three", "completed"]);
    const { events, error } = await drain(
      await client.responses.create({ model: "demo", input: "/echo one two three", stream: true }),
    );
    assert.equal(error, undefined);
    assert.equal(deltasOf(events), "one two three");
    for (const command of ["/events", "/tokens 50", "/warn", "/flaky 1"]) {
      const final = await client.responses
        .stream({ model: "demo", input: command })
        .finalResponse();
      assert.equal(final.status, "completed", command);
      const { output_text, usage } = await client.responses.retrieve(final.id);
      assert.deepEqual(
        { output_text, usage },
        { output_text: final.output_text, usage: final.usage },
        command,
      );
    }
  });

  test("a conversation, and a tree of answers", async () => {
    const first = await client.responses.create({ input: "/echo a" });
    const next = await client.responses.create({
      input: "/echo b",
      previous_response_id: first.id,
      store: true,
    });
    assert.equal(next.previous_response_id, first.id);
    const items = await client.responses.inputItems.list(next.id);
    assert.equal(items.data[0].content[0].text, "/echo b");
    await assert.rejects(
      client.responses.create({ input: "x", previous_response_id: "resp_none" }),
      { status: 400, code: "previous_response_not_found" },
    );
    await client.responses.delete(first.id);
    await assert.rejects(client.responses.retrieve(first.id), { status: 404 });
  });

  test("in the background: polled, read on, cancelled", async () => {
    let response = await client.responses.create({ input: "/tokens 30", background: true });
    while (response.status === "in_progress")
      response = await client.responses.retrieve(response.id);
    assert.equal(response.status, "completed");
    const all = (await drain(await client.responses.retrieve(response.id, { stream: true })))
      .events;
    const [, , third] = all;
    const rest = await drain(
      await client.responses.retrieve(response.id, {
        stream: true,
        starting_after: third.sequence_number,
      }),
    );
    assert.deepEqual(rest.events, all.slice(3));
    const hanging = await client.responses.create({ input: "/hang", background: true });
    assert.equal((await client.responses.cancel(hanging.id)).status, "cancelled");
  });

  test("tools: called, answered, in both APIs", { timeout: 60_000 }, async (t) => {
    const { calls, answer, seen, config } = providers.openai;
    const provider = await startProvider((nth) => (nth % 2 === 0 ? calls : answer("It is sunny.")));
    t.after(provider.stop);
    const behind = await startGateway({
      config: `[[agents]]\nname = "model"\n${config(provider.url)}`,
    });
    t.after(() => behind.stop());
    const model = clientFor(behind.url);
    const parameters = { type: "object", properties: { city: { type: "string" } } };
    const tools = [
      { type: "function", function: { name: "weather", description: "How it is", parameters } },
    ];
    const messages = [
      { role: "system", content: "Be brief." },
      { role: "user", content: "How is the weather?" },
    ];
    const streamed = await model.chat.completions
      .stream({ model: "model", messages, tools })
      .finalChatCompletion();
    assert.equal(streamed.choices[0].finish_reason, "tool_calls");
    const { message } = streamed.choices[0];
    assert.deepEqual(
      message.tool_calls.map((call) => call.function.arguments),
      ['{"city":"Rome"}'],
    );
    messages.push(message, {
      role: "tool",
      tool_call_id: message.tool_calls[0].id,
      content: "21 °C",
    });
    const said = await model.chat.completions.create({ model: "model", messages, tools });
    assert.equal(said.choices[0].message.content, "It is sunny.");
    assert.deepEqual(seen(provider.bodies[1]), {
      tools: ["weather"],
      context: "Be brief.",
      result: "21 °C",
      called: true,
    });

    const flat = [
      { type: "function", name: "weather", description: "How it is", parameters, strict: false },
    ];
    const first = await model.responses
      .stream({
        model: "model",
        input: "How is the weather?",
        instructions: "Be brief.",
        tools: flat,
      })
      .finalResponse();
    const call = first.output.find((item) => item.type === "function_call");
    assert.deepEqual(
      [call.call_id, call.name, call.arguments],
      ["call_1", "weather", '{"city":"Rome"}'],
    );
    const output = [{ type: "function_call_output", call_id: call.call_id, output: "21 °C" }];
    const second = await model.responses.create({
      model: "model",
      input: output,
      previous_response_id: first.id,
      tools: flat,
    });
    assert.equal(second.output_text, "It is sunny.");
    assert.deepEqual(seen(provider.bodies[3]), {
      tools: ["weather"],
      context: "",
      result: "21 °C",
      called: true,
    });
    // Members that the model understands reach it, also those that decide about the form of the
    // answer.
    await model.chat.completions.create({
      model: "model",
      messages: messages.slice(0, 2),
      response_format: { type: "json_object" },
      temperature: 0.5,
    });
    assert.deepEqual(
      [provider.bodies[4].response_format, provider.bodies[4].temperature],
      [{ type: "json_object" }, 0.5],
    );
  });

  test("a stopped chat ends", async () => {
    const { data, response } = await client.chat.completions
      .create(chat("/hang", { stream: true }))
      .withResponse();
    const stream = response.headers.get("x-stream-id");
    await fetch(`${gateway.url}/v1/streams/${stream}`, { method: "DELETE" });
    const { events, error } = await drain(data);
    assert.deepEqual([events.at(-1).choices[0].finish_reason, error], ["stop", undefined]);
    assert.equal(
      (await runsOf(gateway.url)).find((run) => run.stream_id === stream).state,
      "closed",
    );
  });
});
