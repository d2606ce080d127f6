// `useChat`'s own chat against the real binary: answers, failures, reloads, cuts, stops, tools,
// questions.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";

import { startGateway } from "../../../testing/gateway.mjs";
import { cutsOf, startCutter } from "../../ag-ui-tests/support/cutter.mjs";
import { providers, startProvider } from "../../ag-ui-tests/support/providers.mjs";
import { answers, chatAt, sdks, textOf, tokens, until } from "../support/chat.mjs";

const CODES = {
  AGENT_EXECUTION_ERROR: 500,
  SESSION_NOT_FOUND: 404,
  RATE_LIMITED: 429,
  TIMEOUT: 504,
  UPSTREAM_ERROR: 502,
  SERVICE_UNAVAILABLE: 503,
};

/** Of twenty words: the words, three chunks before them and three after. */
const CHUNKS = 26;

/** A key's hash, as `capstan key new` prints one. */
const hashOf = `sha256:${"0".repeat(64)}`;

describe("AI SDK", { concurrency: true }, () => {
  for (const { name, sdk } of sdks) {
    describe(name, { concurrency: true, timeout: 60_000 }, () => {
      let gateway, api;
      before(async () => {
        gateway = await startGateway();
        api = `${gateway.url}/v1/ai-sdk/chat`;
      });
      after(() => gateway.stop());

      test("an answer is one message", async () => {
        const finished = [];
        const chat = chatAt(sdk, api, { onFinish: (end) => finished.push(end) });
        await chat.sendMessage({ text: "/tokens 20" });
        assert.deepEqual([chat.status, chat.error], ["ready", undefined]);
        assert.deepEqual(answers(chat).map(textOf), [tokens(20)]);
        assert.match(answers(chat)[0].id, /^msg_[0-9a-f-]{36}$/);
        assert.equal(answers(chat)[0].parts.at(-1).state, "done");
        if (name !== "ai 5") assert.equal(finished[0].finishReason, "stop");
      });

      test("presentation events are parts that the page can show", async () => {
        const chat = chatAt(sdk, api);
        await chat.sendMessage({ text: "/events" });
        assert.equal(chat.error, undefined);
        const types = answers(chat)[0].parts.map((part) => part.type);
        for (const type of [
          "reasoning",
          "source-url",
          "file",
          "data-progress",
          "data-citations",
          "data-media",
          "data-user-error",
        ]) {
          assert.ok(types.includes(type), `${type} is not among ${types}`);
        }
        const steps = answers(chat)[0].parts.filter((part) => part.type === "data-progress");
        assert.equal(
          new Set(steps.map((step) => step.id)).size,
          steps.length,
          "a step has one place",
        );
      });

      for (const [code, status] of Object.entries(CODES)) {
        test(`${code} is a sentence for a person and a fault for the page`, async () => {
          const chat = chatAt(sdk, api);
          await chat.sendMessage({ text: `/fault ${code}` });
          assert.equal(chat.status, "error");
          const [fault] = chat.data.filter((part) => part.type === "data-capstan-error");
          assert.equal(fault.data.severity, "FATAL");
          assert.equal(fault.data.details?.http_status ?? status, status);
          assert.equal(chat.error.message, fault.data.message);
          assert.deepEqual(answers(chat).map(textOf), [tokens(3)], "what was said stays");
        });
      }

      test("a reload in the middle of an answer has all of it, once", async () => {
        const chat = chatAt(sdk, api);
        const first = chat.sendMessage({ text: "/tokens 200 --delay 5ms" });
        await until(() => answers(chat).length > 0 && textOf(answers(chat)[0]).length > 20);
        const kept = structuredClone(chat.messages);
        await chat.stop();
        await first;
        // The page may or may not have stored the half answer.
        for (const messages of name === "ai 5" ? [kept.slice(0, 1)] : [kept, kept.slice(0, 1)]) {
          const again = chatAt(sdk, api, { id: chat.id, messages: structuredClone(messages) });
          await again.resumeStream();
          assert.deepEqual([again.status, answers(again).map(textOf)], ["ready", [tokens(200)]]);
          assert.equal(answers(again)[0].id, answers(chat)[0].id);
        }
      });

      test("an answer that ended while nobody looked is there", async () => {
        const chat = chatAt(sdk, api);
        await chat.sendMessage({ text: "/tokens 9" });
        const again = chatAt(sdk, api, { id: chat.id, messages: [chat.messages[0]] });
        await again.resumeStream();
        assert.deepEqual(again.messages, chat.messages);
        const nobody = chatAt(sdk, api);
        await nobody.resumeStream();
        assert.deepEqual([nobody.status, nobody.messages], ["ready", []]);
      });

      for (const cut of name === "ai 5" ? [] : cutsOf(CHUNKS)) {
        test(`a cut after chunk ${cut} is healed by coming back`, async (t) => {
          const cutter = await startCutter(gateway.url, (nth) => (nth === 0 ? cut : undefined));
          t.after(cutter.stop);
          const chat = chatAt(sdk, `${cutter.url}/v1/ai-sdk/chat`);
          await chat.sendMessage({ text: "/tokens 20" });
          assert.equal(chat.status, "error", "a cut is no end");
          await chat.resumeStream();
          assert.deepEqual([chat.status, answers(chat).map(textOf)], ["ready", [tokens(20)]]);
        });
      }

      test("a stop from elsewhere ends the chat for all", async () => {
        const chat = chatAt(sdk, api);
        const sent = chat.sendMessage({ text: "/tokens 100000 --delay 5ms" });
        await until(() => answers(chat).length > 0 && textOf(answers(chat)[0]).length > 10);
        const other = chatAt(sdk, api, { id: chat.id, messages: chat.messages.slice(0, 1) });
        const watched = other.resumeStream();
        const stopped = await fetch(`${api}/${chat.id}/stream`, { method: "DELETE" });
        assert.equal(stopped.status, 204);
        await Promise.all([sent, watched]);
        assert.deepEqual([chat.status, other.status], ["ready", "ready"]);
        assert.equal(textOf(answers(chat)[0]), textOf(answers(other)[0]));
      });

      test("the same message sent twice is one run, another answer is another", async () => {
        const [one, two] = [randomUUID(), randomUUID()];
        const message = { id: one, role: "user", parts: [{ type: "text", text: "/tokens 5" }] };
        const chats = [chatAt(sdk, api, { id: two }), chatAt(sdk, api, { id: two })];
        await Promise.all(chats.map((chat) => chat.sendMessage(structuredClone(message))));
        assert.deepEqual(chats[0].messages, chats[1].messages);
        const first = answers(chats[0])[0].id;
        await chats[0].regenerate();
        assert.deepEqual([answers(chats[0]).length, answers(chats[0])[0].id === first], [1, false]);
      });

      test("a question is answered in the same message", async () => {
        const whole = sdk.lastAssistantMessageIsCompleteWithToolCalls;
        const chat = chatAt(sdk, api, { sendAutomaticallyWhen: whole });
        await chat.sendMessage({ text: "/ask Paint it blue?" });
        const asked = answers(chat)[0].parts.find((part) => part.type === "tool-interrupt");
        assert.deepEqual([asked.state, asked.input.message], ["input-available", "Paint it blue?"]);
        await chat.addToolResult({
          tool: "interrupt",
          toolCallId: asked.toolCallId,
          output: { approved: true },
        });
        await until(() => chat.status === "ready" && /go on/.test(textOf(answers(chat)[0])));
        assert.equal(answers(chat).length, 1);
        assert.match(
          textOf(answers(chat)[0]),
          /decision of yours.*You answered \{"approved":true\}, so I go on\.$/s,
        );
        // A reload now gets all of it.
        const again = chatAt(sdk, api, { id: chat.id, messages: chat.messages.slice(0, 1) });
        await again.resumeStream();
        assert.equal(textOf(answers(again)[0]), textOf(answers(chat)[0]));
      });

      test("a tool of the page makes a round trip", async (t) => {
        const { calls, answer, seen, config } = providers.openai;
        const provider = await startProvider((nth) => (nth === 0 ? calls : answer("It is sunny.")));
        t.after(provider.stop);
        const own = await startGateway({
          config: `[[agents]]\nname = "m"\n${config(provider.url)}`,
        });
        t.after(() => own.stop());
        const tools = [
          { name: "weather", description: "How it is", parameters: { type: "object" } },
        ];
        const chat = chatAt(sdk, `${own.url}/v1/agents/m/ai-sdk/chat`, {
          body: { tools },
          sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithToolCalls,
          onToolCall: ({ toolCall }) =>
            void chat.addToolResult({
              tool: toolCall.toolName,
              toolCallId: toolCall.toolCallId,
              output: "21 °C",
            }),
        });
        await chat.sendMessage({ text: "How is the weather?" });
        await until(() => chat.status === "ready" && provider.bodies.length === 2);
        assert.deepEqual(seen(provider.bodies[0]).tools, ["weather"]);
        assert.equal(seen(provider.bodies[1]).result, "21 °C");
        await until(() => /sunny/.test(textOf(answers(chat)[0])));
        assert.deepEqual(answers(chat).map(textOf), ["Let me look.It is sunny."]);
        assert.equal(chat.status, "ready");
      });

      test("the input of a call is seen once although the model broke off", async (t) => {
        const { config } = providers.openai;
        const piece = (call) => ({
          choices: [{ index: 0, delta: { tool_calls: [{ index: 0, ...call }] } }],
        });
        const call = (id, ...pieces) => [
          piece({ id, function: { name: "weather", arguments: "" } }),
          ...pieces.map((text) => piece({ function: { arguments: text } })),
        ];
        const end = { choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] };
        const provider = await startProvider((nth) =>
          nth === 0 ? call("one", '{"city"') : [...call("two", '{"ci', 'ty":', '"Rome"}'), end],
        );
        t.after(provider.stop);
        const own = await startGateway({
          config: `[[agents]]\nname = "m"\n${config(provider.url)}`,
        });
        t.after(() => own.stop());
        const called = [];
        const tools = [
          { name: "weather", description: "How it is", parameters: { type: "object" } },
        ];
        const chat = chatAt(sdk, `${own.url}/v1/agents/m/ai-sdk/chat`, {
          body: { tools },
          onToolCall: ({ toolCall }) => void called.push(toolCall),
        });
        await chat.sendMessage({ text: "How is the weather?" });
        await until(() => chat.status === "ready" && called.length > 0);
        assert.equal(provider.bodies.length, 2);
        const parts = answers(chat)[0].parts.filter((part) => part.type === "tool-weather");
        assert.deepEqual(
          parts.map(({ toolCallId, state, input }) => ({ toolCallId, state, input })),
          [{ toolCallId: "one", state: "input-available", input: { city: "Rome" } }],
        );
        assert.deepEqual(
          called.map(({ toolCallId, input }) => ({ toolCallId, input })),
          [{ toolCallId: "one", input: { city: "Rome" } }],
        );
      });
    });
  }

  test("who may not ask is told in a sentence", { timeout: 60_000 }, async (t) => {
    const config = '[[tenants]]\nname = "acme"\nkeys = ["' + hashOf + '"]\n';
    const own = await startGateway({ config });
    t.after(() => own.stop());
    const [{ sdk }] = sdks;
    const chat = chatAt(sdk, `${own.url}/v1/ai-sdk/chat`);
    await chat.sendMessage({ text: "Hi" });
    assert.equal(chat.status, "error");
    assert.equal(chat.error.statusCode, 401);
    assert.match(chat.error.message, /^[A-Z][^{}]+\.$/);
  });
});
