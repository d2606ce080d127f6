// A front end with its own tools, and questions to users: the published clients against each kind
// of agent.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";

import { HttpAgent as HttpAgent1 } from "@ag-ui/client";
import { HttpAgent as HttpAgent0 } from "@ag-ui/client-0";

import { startGateway } from "../../../testing/gateway.mjs";
import { listen } from "../support/clients.mjs";
import { providers, startProvider } from "../support/providers.mjs";

const clients = { "@ag-ui/client 1.0.0": HttpAgent1, "@ag-ui/client 0.0.59": HttpAgent0 };
const weather = {
  name: "weather",
  description: "How it is",
  parameters: { type: "object", properties: { city: { type: "string" } } },
};

/** A gateway for one test, with one agent behind which `script` answers. */
async function behind(t, kind, script) {
  const provider = await startProvider(script);
  t.after(provider.stop);
  const gateway = await startGateway({
    config: `[[agents]]\nname = "${kind}"\n${providers[kind].config(provider.url)}`,
  });
  t.after(() => gateway.stop());
  return { bodies: provider.bodies, endpoint: `${gateway.url}/v1/agents/${kind}/ag-ui` };
}

/** Runs an agent once more; returns its events. */
async function run(agent, input = {}) {
  const events = [];
  await agent.runAgent(
    { runId: randomUUID(), ...input },
    { onEvent: ({ event }) => void events.push(event) },
  );
  return events;
}

function agentFor(HttpAgent, url, text) {
  return new HttpAgent({
    url,
    threadId: randomUUID(),
    initialMessages: [{ id: "u1", role: "user", content: text }],
  });
}

describe("turns", { concurrency: true }, () => {
  for (const [name, HttpAgent] of Object.entries(clients)) {
    const isV1 = HttpAgent === HttpAgent1;
    for (const kind of Object.keys(providers)) {
      test(
        `${name}: a front-end tool round trip through ${kind}`,
        { timeout: 60_000 },
        async (t) => {
          const said = listen();
          const { calls, answer, seen } = providers[kind];
          const { bodies, endpoint } = await behind(t, kind, (nth) =>
            nth === 0 ? calls : answer("It is sunny."),
          );
          const agent = agentFor(HttpAgent, endpoint, "How is the weather?");
          const input = { tools: [weather], context: [{ description: "city", value: "Rome" }] };
          const first = await run(agent, input);
          const call = agent.messages
            .flatMap((m) => m.toolCalls ?? [])
            .find((c) => c.id === "call_1");
          assert.deepEqual(call.function, { name: "weather", arguments: '{"city":"Rome"}' });
          assert.deepEqual(
            first.at(-1).outcome,
            isV1 ? { type: "success", pendingToolCallIds: ["call_1"] } : undefined,
          );
          const asked = seen(bodies[0]);
          assert.deepEqual(asked.tools, ["weather"]);
          assert.match(asked.context, /city: Rome/);

          agent.addMessage({
            id: randomUUID(),
            role: "tool",
            toolCallId: "call_1",
            content: "21 °C",
          });
          const second = await run(agent, input);
          assert.equal(second.at(-1).type, "RUN_FINISHED");
          assert.equal(second.at(-1).outcome, undefined);
          assert.equal(agent.messages.at(-1).content, "It is sunny.");
          const { result, called } = seen(bodies[1]);
          assert.deepEqual({ result, called }, { result: "21 °C", called: true });
          assert.equal(bodies.length, 2, "the model is not asked the same again");
          assert.deepEqual(said, []);
        },
      );
    }
  }

  test(
    "@ag-ui/client 1.0.0: an interrupt of an ag-ui agent is asked and answered",
    { timeout: 60_000 },
    async (t) => {
      const said = listen();
      const { asks, answer } = providers["ag-ui"];
      const { bodies, endpoint } = await behind(t, "ag-ui", (nth) =>
        nth === 0 ? asks : answer("Sent."),
      );
      const agent = agentFor(HttpAgent1, endpoint, "Write to them.");
      const first = await run(agent);
      const { outcome } = first.at(-1);
      assert.equal(outcome.type, "interrupt");
      assert.equal(outcome.interrupts[0].message, "Send it?");
      const [open] = agent.pendingInterrupts;
      await run(agent, {
        resume: [{ interruptId: open.id, status: "resolved", payload: { ok: true } }],
      });
      assert.deepEqual(bodies[1].resume, [
        { interruptId: "i1", status: "resolved", payload: { ok: true } },
      ]);
      assert.equal(agent.messages.at(-1).content, "Sent.");
      assert.deepEqual(said, []);
    },
  );

  test("@ag-ui/client 1.0.0: of two tabs that answer, one wins", { timeout: 60_000 }, async (t) => {
    const said = listen();
    const gateway = await startGateway();
    t.after(() => gateway.stop());
    const agent = agentFor(HttpAgent1, gateway.endpoint, "/ask Paint it blue?");
    const tab = new HttpAgent1({
      url: gateway.endpoint,
      threadId: agent.threadId,
      initialMessages: agent.messages,
    });
    const [asked] = (await run(agent)).at(-1).outcome.interrupts;
    assert.equal(asked.responseSchema.type, "object");
    const resume = [{ interruptId: asked.id, status: "resolved", payload: { approved: true } }];
    const ends = (await Promise.all([agent, tab].map((a) => run(a, { resume })))).map((events) =>
      events.at(-1),
    );
    const lost = ends.find((end) => end.type === "RUN_ERROR");
    assert.deepEqual(ends.map((end) => end.type).sort(), ["RUN_ERROR", "RUN_FINISHED"]);
    assert.equal(lost.metadata.capstan.kind, "interrupt_not_open");
    assert.ok(
      [agent, tab].some((a) => /You answered \{"approved":true\}/.test(a.messages.at(-1).content)),
    );
    assert.deepEqual(said, []);
  });
});
