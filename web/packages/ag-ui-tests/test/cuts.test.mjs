// Broken connections: after a cut at any event, the run continues and no text is repeated.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { startCutter } from "../support/cutter.mjs";
import { startGateway } from "../../../testing/gateway.mjs";
import { clients, listen, types } from "../support/clients.mjs";

/**
 * `make soak` cuts after each event, else a long run is cut at a dozen places, its first and last
 * event among them.
 */
const PLACES = process.env["CAPSTAN_SOAK"] ? Infinity : 12;
const placesIn = (events) => {
  const step = Math.max(1, (events - 1) / (PLACES - 1));
  return new Set(Array.from({ length: Math.min(events, PLACES) }, (_, n) => Math.round(n * step)));
};

/** The part of the result that must not depend on cuts. Ids and times differ between runs. */
const shape = ({ events, answer }) => ({ types: types(events), answer });

describe("broken connections", { concurrency: true }, () => {
  for (const [name, { run }] of Object.entries(clients)) {
    describe(name, { concurrency: true, timeout: 300_000 }, () => {
      let gateway;
      before(async () => (gateway = await startGateway()));
      after(() => gateway.stop());

      /** One run for each position of the first cut, in parallel. */
      async function cutEverywhere(command, events, check) {
        const cuts = Array.from(placesIn(events), async (n) => {
          const cutter = await startCutter(gateway.url, (request) =>
            request === 0 ? n + 1 : undefined,
          );
          const cut = await run(cutter.endpoint, command);
          if (n + 1 < events) assert.ok(cutter.log.length > 1, "the client asked again");
          assert.equal(cut.thrown, undefined, `cut after ${n + 1}: ${cut.thrown}`);
          check(cut, `cut after ${n + 1}`);
          await cutter.stop();
        });
        await Promise.all(cuts);
      }

      for (const command of [
        "/tokens 6",
        "/events",
        "/fault content_refused",
        "/diverge",
        "/warn",
        "/flaky 1",
      ]) {
        test(`${command}: a cut after any event heals`, async () => {
          const said = listen();
          const whole = await run(gateway.endpoint, command);
          await cutEverywhere(command, whole.events.length, (cut, where) => {
            assert.deepEqual(withoutSecondEnd(shape(cut)), shape(whole), where);
          });
          assert.deepEqual(said, []);
        });
      }

      test("/fault timeout: a returning client starts the next attempt once", async () => {
        const said = listen();
        const whole = await run(gateway.endpoint, "/fault timeout");
        await cutEverywhere("/fault timeout", whole.events.length, (cut, where) => {
          assert.deepEqual(cut.answer, whole.answer, where);
          assert.equal(cut.error.code, "TIMEOUT", where);
        });
        assert.deepEqual(said, []);
      });

      test("a connection that brings one event at a time brings them all", async () => {
        const said = listen();
        const whole = await run(gateway.endpoint, "/events");
        const cutter = await startCutter(gateway.url, (n) =>
          n < whole.events.length ? 1 : undefined,
        );
        const cut = await run(cutter.endpoint, "/events");
        assert.equal(cut.thrown, undefined);
        assert.deepEqual(withoutSecondEnd(shape(cut)), shape(whole));
        assert.ok(
          new Set(cutter.log).size >= whole.events.length - 1,
          "every request came with another cursor",
        );
        await cutter.stop();
        assert.deepEqual(said, []);
      });
    });
  }
});

/** A client whose connection broke after the end requests once more and gets the end again. */
function withoutSecondEnd({ types, answer }) {
  const isEnd = (type) => type === "RUN_FINISHED" || type === "RUN_ERROR";
  return { types: types.filter((type, n) => !(isEnd(type) && isEnd(types[n - 1]))), answer };
}
