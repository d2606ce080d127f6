// The parts that the suites of all CLIs share: a table of results, and tests that the death of a
// gateway does not end the turn.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";

import { holds, killed, play as playAny } from "./play.mjs";
import { Table } from "./table.mjs";

/** The places in which the stream of a model may break. */
export const places = [
  "before-events",
  "after-thinking",
  "mid-text",
  "mid-arguments",
  "before-end",
];

const { CAPSTAN_SOAK, CAPSTAN_TEST_POSTGRES, CI } = process.env;
const soak = { skip: CAPSTAN_SOAK ? false : "soak: needs CAPSTAN_SOAK" };

/** Continuous integration must run it: there it fails without a server. */
const cluster = CAPSTAN_TEST_POSTGRES || CI === "true" ? {} : { skip: "needs scripts/postgres" };

const ALONE = "without Capstan";
/** The ways in which a CLI reaches Capstan, by the name of their column. */
const POST = { "with Capstan": {} };

/**
 * The suite of a CLI. `body` gets `row`, which tests a turn with Capstan in each way and, in the
 * soak, without, and puts all into the table. A row with `isLong` has only its first way outside
 * the soak.
 * @param {string} name
 * @param {"claude" | "codex"} cli
 * @param {(tools: { row: Function, each: Function, play: Function, table: Table,
 * endures: Function }) => void} body
 * @param {Record<string, object>} ways
 */
export function suite(name, cli, body, ways = POST) {
  describe(name, { concurrency: 4, timeout: 300_000 }, () => {
    const table = new Table("what breaks once", [ALONE, ...Object.keys(ways)]);
    after(() => table.print());
    const play = (t, options) => playAny(t, { cli, ...options });

    /** A test for each way, which gets the options of the way. */
    const each = (name, run, options = () => ({})) => {
      Object.entries(ways).forEach(([column, way], nth) => {
        const settings = options(nth);
        const title = settings === soak ? `soak: ${name}` : name;
        test(`${title}, ${column}`, settings, (t) => run(t, way, column));
      });
    };

    const row = (name, options, { without, with: calls, isLong = false }) => {
      test(`soak: ${name}, ${ALONE}`, soak, async (t) => {
        const result = await play(t, { ...options, capstan: false });
        table.set(name, ALONE, result);
        hasCalls(result, without);
      });
      const run = async (t, way, column) => {
        const result = await play(t, { ...options, ...way });
        table.set(name, column, result);
        holds(result, calls);
      };
      each(name, run, (nth) => (isLong && nth > 0 ? soak : {}));
    };

    /** The gateway dies in the middle of an answer. */
    const endures = (calls) => {
      const dies = (row, options) => async (t, way, column) => {
        const result = await play(t, { ...options, ...way, during: killed, slow: true });
        table.set(row, column, result);
        holds(result, calls);
      };
      each(
        "the gateway is killed in the middle of an answer, and comes back",
        dies("the gateway, killed", {}),
      );
      each(
        "one of two gateways over PostgreSQL is killed, the other goes on",
        dies("one of two gateways, killed", { capstan: "pair" }),
        () => cluster,
      );
    };

    body({ row, each, play, table, endures });

    test(`\`capstan ${cli}\` starts it, with the arguments behind \`--\``, async (t) => {
      holds(await play(t, { by: "capstan" }), 2);
    });
  });
}

function hasCalls(result, expected) {
  assert.ok([expected].flat().includes(result.calls), `${result.calls} calls`);
}
