// Joining a run in the middle or after its end, through the face that started it or the other one.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";

import { ChatClient, fetchServerSentEvents } from "@tanstack/ai-client";

import { startCutter } from "../support/cutter.mjs";
import { startGateway } from "../../../testing/gateway.mjs";
import { answerOf, clients, listen, tokens, types } from "../support/clients.mjs";

let gateway;
before(async () => (gateway = await startGateway()));
after(() => gateway.stop());

const agUi = Object.entries(clients).filter(([, client]) => !client.isTanStack);

describe("joining a run", { concurrency: true }, () => {
  for (const [name, { run }] of agUi) {
    describe(name, { concurrency: true, timeout: 60_000 }, () => {
      test("a client without a cursor receives a snapshot and the tail", async () => {
        const said = listen();
        const ids = { runId: randomUUID(), threadId: randomUUID() };
        let begun;
        const isUnderWay = new Promise((resolve) => (begun = resolve));
        const onEvent = (event) => event.type === "TEXT_MESSAGE_CONTENT" && begun();
        const first = run(gateway.endpoint, "/tokens 40 --delay 10ms", { ...ids, onEvent });
        await isUnderWay;
        const late = await run(gateway.endpoint, "/tokens 40 --delay 10ms", ids);
        assert.deepEqual(late.answer, [tokens(40)]);
        assert.deepEqual(types(late.events).slice(0, 2), ["RUN_STARTED", "MESSAGES_SNAPSHOT"]);
        assert.deepEqual((await first).answer, [tokens(40)]);
        assert.equal(late.messages.filter((m) => m.role === "user").length, 1);
        assert.deepEqual(said, []);
      });

      test("a client with half of the answer does not receive it twice", async () => {
        const said = listen();
        const ids = { runId: randomUUID(), threadId: randomUUID() };
        const whole = await run(gateway.endpoint, "/events", ids);
        const joined = await run(gateway.endpoint, "/events", ids);
        assert.deepEqual(joined.answer, whole.answer);
        for (let cutAfter = 1; cutAfter < joined.events.length; cutAfter++) {
          const cutter = await startCutter(gateway.url, (n) => (n === 0 ? cutAfter : undefined));
          const cut = await run(cutter.endpoint, "/events", ids);
          assert.deepEqual(cut.answer, whole.answer, `cut after ${cutAfter}`);
          assert.deepEqual(types(cut.events), types(joined.events), `cut after ${cutAfter}`);
          await cutter.stop();
        }
        assert.deepEqual(said, []);
      });
    });
  }

  describe("@tanstack/ai-client", { concurrency: true, timeout: 60_000 }, () => {
    test("joinRun replays a run from the start, live and finished, and heals", async () => {
      const said = listen();
      let begun;
      const isUnderWay = new Promise((resolve) => (begun = resolve));
      const onEvent = (event) => event.type === "RUN_STARTED" && begun(event.runId);
      const running = clients["@tanstack/ai-client"].run(
        gateway.endpoint,
        "/tokens 30 --delay 10ms",
        { onEvent },
      );
      const runId = await isUnderWay;
      for (const cutAfter of [undefined, 1, 2, 7]) {
        const cutter = await startCutter(gateway.url, (n) => (n === 0 ? cutAfter : undefined));
        const connection = fetchServerSentEvents(cutter.endpoint, { reconnect: { delayMs: 1 } });
        const events = [];
        for await (const event of connection.joinRun(runId)) events.push(event);
        const text = events
          .filter((e) => e.type === "TEXT_MESSAGE_CONTENT")
          .map((e) => e.delta)
          .join("");
        assert.equal(text, tokens(30), `cut after ${cutAfter}`);
        assert.deepEqual([types(events)[0], types(events).at(-1)], ["RUN_STARTED", "RUN_FINISHED"]);
        await cutter.stop();
      }
      assert.deepEqual((await running).answer, [tokens(30)]);
      assert.deepEqual(said, []);
    });

    test("joining an unknown run is a typed failure", async () => {
      const events = [];
      for await (const event of fetchServerSentEvents(gateway.endpoint).joinRun("nobody"))
        events.push(event);
      assert.deepEqual(
        events.map((e) => [e.type, e.code]),
        [["RUN_ERROR", "SESSION_NOT_FOUND"]],
      );
    });

    test("a second turn goes into the same conversation", async () => {
      const said = listen();
      const client = new ChatClient({ connection: fetchServerSentEvents(gateway.endpoint) });
      await client.sendMessage("/tokens 2");
      await client.sendMessage("/tokens 3");
      assert.deepEqual(answerOf(client.getMessages()), [tokens(2), tokens(3)]);
      assert.deepEqual(said, []);
    });
  });
});
