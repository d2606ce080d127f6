// Streams of other protocols, cut after any event: their clients resume, and a client with a cursor
// misses nothing and gets nothing twice. Six positions, and in the soak every one.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";

import { startGateway } from "../../../testing/gateway.mjs";
import { cutsOf, startCutter } from "../../ag-ui-tests/support/cutter.mjs";
import { COMPLETED, clientAt, message, readToTheEnd, transports } from "../support/a2a.mjs";
import { tokens } from "../support/chat.mjs";
import { readFrom } from "../support/durable.mjs";

const WORDS = 12;
const LONG = `/tokens ${WORDS} --delay 1ms`;
const json = { "content-type": "application/json", "a2a-version": "1.0" };
/** The first event is the task, the last its end. */
const cuts = cutsOf(WORDS + 2);

/** The events of a body, as they are on the wire, and how it ended. */
async function framesOf(response) {
  const [decoder, frames] = [new TextDecoder(), []];
  let text = "";
  try {
    for await (const chunk of response.body) text += decoder.decode(chunk, { stream: true });
    return { frames: taken(text, frames), isCut: false };
  } catch {
    return { frames: taken(text, frames), isCut: true };
  }
}
const taken = (text, frames) => {
  frames.push(
    ...text
      .split("\n\n")
      .slice(0, -1)
      .map((frame) =>
        frame
          .split("\n")
          .filter((line) => !line.startsWith(":"))
          .join("\n"),
      ),
  );
  return frames.filter((frame) => frame !== "");
};
const idOf = (frame) => /^id: (.*)$/m.exec(frame)[1];

/** How a message is sent and a task subscribed to, in either binding. */
const bindings = {
  "JSON-RPC": {
    send: (url, said) =>
      fetch(`${url}/v1/a2a`, {
        method: "POST",
        headers: json,
        body: JSON.stringify({
          jsonrpc: "2.0",
          id: 1,
          method: "SendStreamingMessage",
          params: { message: said },
        }),
      }),
    subscribe: (url, id, headers) =>
      fetch(`${url}/v1/a2a`, {
        method: "POST",
        headers: { ...json, ...headers },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "SubscribeToTask", params: { id } }),
      }),
  },
  "HTTP+JSON": {
    send: (url, said) =>
      fetch(`${url}/v1/a2a/message:stream`, {
        method: "POST",
        headers: json,
        body: JSON.stringify({ message: said }),
      }),
    subscribe: (url, id, headers) =>
      fetch(`${url}/v1/a2a/tasks/${id}:subscribe`, {
        method: "POST",
        headers: { ...json, ...headers },
      }),
  },
};

describe("cuts", { concurrency: true, timeout: 120_000 }, () => {
  let gateway;
  before(async () => (gateway = await startGateway()));
  after(() => gateway.stop());

  for (const [name, { send, subscribe }] of Object.entries(bindings)) {
    test(`A2A, ${name}: a task is read on after any event, byte for byte`, async (t) => {
      for (const cut of cuts) {
        // Cut once more after the first subscription.
        const cutter = await startCutter(gateway.url, (nth) => [cut, 1][nth]);
        t.after(cutter.stop);
        const said = { messageId: randomUUID(), role: "ROLE_USER", parts: [{ text: LONG }] };
        let { frames, isCut } = await framesOf(await send(cutter.url, said));
        assert.deepEqual([frames.length, isCut], [cut, true]);
        const id = idOf(frames[0]).split(":")[0];
        while (isCut) {
          const rest = await framesOf(
            await subscribe(cutter.url, id, { "last-event-id": idOf(frames.at(-1)) }),
          );
          [frames, isCut] = [[...frames, ...rest.frames], rest.isCut];
        }
        // The same message sent again gets the task from its beginning.
        assert.deepEqual(
          frames,
          (await framesOf(await send(gateway.url, said))).frames,
          `cut after ${cut}`,
        );
      }
    });
  }

  for (const [name, Transport] of Object.entries(transports)) {
    test(`A2A, ${name}: the official client comes back after any event`, async (t) => {
      for (const cut of cuts) {
        const cutter = await startCutter(gateway.url, (nth) => (nth === 0 ? cut : undefined));
        t.after(cutter.stop);
        // The card names the gateway's own address.
        const client = await clientAt(gateway.url, Transport, (url, init) =>
          fetch(String(url).replace(gateway.url, cutter.url), init),
        );
        const seen = await readToTheEnd(client, message(LONG));
        assert.deepEqual(
          [seen.artifact, seen.states.at(-1), seen.cuts > 0],
          [tokens(WORDS), COMPLETED, true],
          `cut after ${cut}`,
        );
      }
    });
  }

  /**
   * Reads a run of Durable Streams through a cut after so many events, to its end; how often its
   * reader came.
   */
  async function readDurable(t, cut, delay) {
    // Their reader first gets the existing items, then events.
    const cutter = await startCutter(gateway.url, (nth) => (nth === 1 ? cut : undefined));
    t.after(cutter.stop);
    const begun = await bindings["HTTP+JSON"].send(gateway.url, {
      messageId: randomUUID(),
      role: "ROLE_USER",
      parts: [{ text: `/tokens ${WORDS} --delay ${delay}ms` }],
    });
    const path = `/v1/durable/${begun.headers.get("x-stream-id")}`;
    let [items, offset, error] = [[], "-1"];
    do {
      const rest = await readFrom(cutter.url + path, offset);
      items = [...items, ...rest.items];
      ({ offset, error } = rest);
    } while (error !== undefined);
    await begun.text();
    assert.deepEqual(items, (await readFrom(gateway.url + path, "-1")).items, `cut after ${cut}`);
    assert.equal(items.length, WORDS + 1);
    return cutter.log.length;
  }

  test("Durable Streams: a reader that dies goes on at its offset", async (t) => {
    let comings = 0;
    for (const cut of cuts) comings = Math.max(comings, await readDurable(t, cut, 20));
    // An event may contain several items, so not every cut hits something. On a busy machine none
    // does, unless the run lasts longer.
    if (comings <= 2) comings = await readDurable(t, 1, 500);
    assert.ok(comings > 2, "none was cut, and came again");
  });
});
