// The official SDK of A2A 0.3 in both of its bindings. Only in the soak, like the one for Python.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";

import {
  ClientFactory,
  ClientFactoryOptions,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from "@a2a-js/sdk-0/client";

import { startGateway } from "../../../testing/gateway.mjs";
import { tokens } from "../support/chat.mjs";

const skip = process.env.CAPSTAN_SOAK ? false : "soak: needs CAPSTAN_SOAK";
const transports = {
  "JSON-RPC": [new JsonRpcTransportFactory(), "JSONRPC"],
  "HTTP+JSON": [new RestTransportFactory(), "HTTP+JSON"],
};
const message = (text) => ({
  kind: "message",
  messageId: randomUUID(),
  role: "user",
  parts: [{ kind: "text", text }],
});
const textOf = (parts) => parts.map((part) => part.text ?? "").join("");

async function fold(events) {
  const seen = { artifact: "", states: [] };
  for await (const event of events) {
    if (event.kind === "task") {
      [seen.id, seen.artifact] = [
        event.id,
        (event.artifacts ?? []).map((artifact) => textOf(artifact.parts)).join(""),
      ];
      seen.states.push(event.status.state);
    } else if (event.kind === "artifact-update") {
      // In HTTP+JSON this SDK loses `append`.
      seen.artifact = (event.append === false ? "" : seen.artifact) + textOf(event.artifact.parts);
    } else {
      seen.states.push(event.status.state);
      seen.status = event.status;
    }
  }
  return seen;
}

describe("soak: A2A 0.3", { skip, concurrency: true, timeout: 60_000 }, () => {
  let gateway;
  before(async () => (gateway = await startGateway()));
  after(() => gateway?.stop());

  for (const [name, [factory, word]] of Object.entries(transports)) {
    describe(name, { concurrency: true }, () => {
      const connect = () =>
        new ClientFactory(
          ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
            transports: [factory],
            preferredTransports: [word],
          }),
        ).createFromUrl(gateway.url);

      test("a message is sent, streamed and kept", async () => {
        const client = await connect();
        const task = await client.sendMessage({ message: message("/tokens 5") });
        assert.deepEqual(
          [task.kind, task.status.state, textOf(task.artifacts[0].parts)],
          ["task", "completed", tokens(5)],
        );
        const seen = await fold(client.sendMessageStream({ message: message("/tokens 20") }));
        assert.equal(seen.artifact, tokens(20));
        assert.deepEqual([seen.states[0], seen.states.at(-1)], ["working", "completed"]);
        assert.equal(
          textOf((await client.getTask({ id: seen.id })).artifacts[0].parts),
          tokens(20),
        );
      });

      test("a failure is told in types", async () => {
        const client = await connect();
        const seen = await fold(
          client.sendMessageStream({ message: message("/fault content_refused") }),
        );
        assert.equal(seen.states.at(-1), "failed");
        assert.equal(
          seen.status.message.parts.find((part) => part.kind === "data").data.code,
          "content_refused",
        );
      });

      test("a task is subscribed to, cancelled, and then over", async () => {
        const client = await connect();
        const events = client.sendMessageStream({ message: message("/tokens 100000 --delay 5ms") });
        const { id } = (await events.next()).value;
        const watching = fold(client.resubscribeTask({ id }));
        assert.equal((await client.cancelTask({ id })).status.state, "canceled");
        // A subscription after the end gets an error.
        const seen = await watching.catch((error) => error);
        if (!(seen instanceof Error)) assert.equal(seen.states.at(-1), "canceled");
        await assert.rejects(client.cancelTask({ id }));
        await assert.rejects(client.getTask({ id: randomUUID() }));
      });

      test("the extended card is there", async () => {
        const client = await connect();
        assert.equal((await client.getAgentCard()).name, "demo");
      });
    });
  }
});
