// The official SDK of A2A against the real binary: both bindings, both versions, and what happens
// when a stream is cut.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";

import { startGateway } from "../../../testing/gateway.mjs";
import {
  CANCELED,
  COMPLETED,
  FAILED,
  INPUT_REQUIRED,
  WORKING,
  clientAt,
  fold,
  message,
  request,
  textOf,
  transports,
} from "../support/a2a.mjs";
import { tokens } from "../support/chat.mjs";

describe("A2A", { concurrency: true, timeout: 60_000 }, () => {
  let gateway;
  before(async () => (gateway = await startGateway()));
  after(() => gateway.stop());

  for (const [name, Transport] of Object.entries(transports)) {
    describe(name, { concurrency: true }, () => {
      const connect = () => clientAt(gateway.url, Transport);

      test("a message is streamed as a task, which is kept", async () => {
        const client = await connect();
        const seen = await fold(client.sendMessageStream(request(message("/tokens 20"))));
        assert.equal(seen.artifact, tokens(20));
        assert.deepEqual([seen.states[0], seen.states.at(-1)], [WORKING, COMPLETED]);
        const task = await client.getTask({ tenant: "", id: seen.id });
        assert.equal(textOf(task.artifacts[0].parts), tokens(20));
      });

      test("the same message starts one task", async () => {
        const client = await connect();
        const said = message("/tokens 3");
        const first = await fold(client.sendMessageStream(request(said)));
        const again = await fold(client.sendMessageStream(request(said)));
        assert.deepEqual(again, first);
      });

      test("a failure is a task that failed, in types", async () => {
        const client = await connect();
        const seen = await fold(
          client.sendMessageStream(request(message("/fault content_refused"))),
        );
        assert.equal(seen.states.at(-1), FAILED);
        assert.match(textOf(seen.status.message.parts), /\.$/);
        const [data] = seen.status.message.parts.filter((p) => p.content.$case === "data");
        assert.equal(data.content.value.code, "content_refused");
      });

      test("a task is watched by a second reader and cancelled", async () => {
        const client = await connect();
        const events = client.sendMessageStream(request(message("/tokens 100000 --delay 5ms")));
        const first = (await events.next()).value;
        const { id } = (first.payload ?? first).value;
        const watch = client.resubscribeTask({ tenant: "", id });
        // Subscribed before the end, because a later subscription gets an error.
        const joined = (await watch.next()).value;
        const second = fold(
          (async function* () {
            yield joined;
            yield* watch;
          })(),
        );
        const canceled = await client.cancelTask({ tenant: "", id, metadata: undefined });
        assert.equal(canceled.status.state, CANCELED);
        const rest = await fold(events);
        const seen = await second;
        assert.deepEqual([rest.states.at(-1), seen.states.at(-1)], [CANCELED, CANCELED]);
        assert.equal(seen.artifact, textOf(canceled.artifacts[0]?.parts ?? []));
        await assert.rejects(client.cancelTask({ tenant: "", id, metadata: undefined }));
      });

      test("a question is answered under the same task", async () => {
        const client = await connect();
        const asked = await fold(client.sendMessageStream(request(message("/ask Paint it blue?"))));
        assert.equal(asked.states.at(-1), INPUT_REQUIRED);
        assert.match(textOf(asked.status.message.parts), /Paint it blue\?/);
        const answered = await fold(
          client.sendMessageStream(request(message("yes", { taskId: asked.id }))),
        );
        assert.equal(answered.id, asked.id);
        assert.match(answered.artifact, /You answered "yes", so I go on/);
      });

      test("a task that asks is told to who subscribes, and can be cancelled", async () => {
        const client = await connect();
        const asked = await fold(client.sendMessageStream(request(message("/ask Paint it blue?"))));
        const watched = await fold(client.resubscribeTask({ tenant: "", id: asked.id }));
        assert.deepEqual([watched.id, watched.states], [asked.id, [INPUT_REQUIRED]]);
        const canceled = await client.cancelTask({ tenant: "", id: asked.id, metadata: undefined });
        assert.deepEqual([canceled.id, canceled.status.state], [asked.id, CANCELED]);
        assert.equal((await client.getTask({ tenant: "", id: asked.id })).status.state, CANCELED);
        await assert.rejects(client.cancelTask({ tenant: "", id: asked.id, metadata: undefined }));
        await assert.rejects(client.sendMessage(request(message("yes", { taskId: asked.id }))));
      });

      test("an unknown task is told", async () => {
        const client = await connect();
        await assert.rejects(client.getTask({ tenant: "", id: randomUUID() }));
      });
    });
  }
});
