// What the suites of all CLIs share: a table of results, and tests that a gateway's death does not
// end the turn.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";

import { holds, killed, play as playAny } from "./play.mjs";
import { Table } from "./table.mjs";

/** Where the stream of a model may break. */
export const places = [
  "before-events",
  "after-thinking",
  "mid-text",
  "mid-arguments",
  "before-end",
];

const { CAPSTAN_SOAK, CAPSTAN_TEST_POSTGRES, CI } = process.env;

/** Continuous integration must run it: there it fails without a server. */
const cluster = CAPSTAN_TEST_POSTGRES || CI === "true" ? {} : { skip: "needs scripts/postgres" };

/**
 * The suite of a CLI. `body` gets `row`, which tests a turn with Capstan and, in the soak, without,
 * and puts both into the table.
 * @param {string} name
 * @param {"claude" | "codex"} cli
 * @param {(tools: { row: Function, play: Function, table: Table, endures: Function }) => void} body
 */
export function suite(name, cli, body) {
  describe(name, { concurrency: 2, timeout: 300_000 }, () => {
    const table = new Table("what breaks");
    after(() => table.print());
    const play = (t, options) => playAny(t, { cli, ...options });

    const row = (name, options, calls) => {
      const skip = CAPSTAN_SOAK ? false : "soak: needs CAPSTAN_SOAK";
      test(`soak: ${name}, without Capstan`, { skip }, async (t) => {
        const told = await play(t, { ...options, capstan: false });
        table.set(name, "without Capstan", told);
        hasCalls(told, calls.without);
      });
      test(`${name}, with Capstan`, async (t) => {
        const told = await play(t, options);
        table.set(name, "with Capstan", told);
        hasCalls(told, calls.with);
        holds(told, told.calls);
      });
    };

    /** The gateway dies in the middle of an answer. */
    const endures = (calls) => {
      const dies = (row, options) => async (t) => {
        const told = await play(t, { ...options, during: killed, slow: true });
        table.set(row, "with Capstan", told);
        hasCalls(told, calls);
        holds(told, told.calls);
      };
      test(
        "the gateway is killed in the middle of an answer, and comes back",
        dies("the gateway, killed", {}),
      );
      test(
        "one of two gateways over PostgreSQL is killed, the other goes on",
        cluster,
        dies("one of two gateways, killed", { capstan: "pair" }),
      );
    };

    body({ row, play, table, endures });

    test(`\`capstan ${cli}\` starts it, with what stands behind \`--\``, async (t) => {
      holds(await play(t, { by: "capstan" }), 2);
    });
  });
}

function hasCalls(told, expected) {
  assert.ok([expected].flat().includes(told.calls), `${told.calls} calls`);
}
