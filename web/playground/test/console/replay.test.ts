// The replay: at the speed at which it came, or faster, on a clock that is handed in.
import type { StreamPacket } from "capstan";
import { expect, test } from "vitest";

import { Fold, framesOf, questionOf } from "../../src/console/run/packets.js";
import { LONGEST_PAUSE, paced, played, rested, RESTING, schedule, set, shownBy, standing } from "../../src/console/run/replay.js";

test("packets come as far apart as they came; long pauses are cut where waits are skipped", () => {
  expect(schedule([1_000, 1_200, 31_200, 31_300], false)).toEqual([0, 200, 30_200, 30_300]);
  expect(schedule([1_000, 1_200, 31_200, 31_300], true)).toEqual([0, 200, 200 + LONGEST_PAUSE, 300 + LONGEST_PAUSE]);
  // A stamp that goes back is no reason to.
  expect(schedule([1_000, 900, 1_000], false)).toEqual([0, 0, 100]);
});

test("it stands still, plays, changes its pace and is set elsewhere", () => {
  const playing = played(RESTING, 1_000);
  expect([standing(RESTING, 5_000), standing(playing, 3_500)]).toEqual([0, 2_500]);
  const fast = paced(playing, 16, 2_000);
  expect(standing(fast, 3_000)).toBe(1_000 + 16_000);
  expect(standing(set(fast, 50, 3_000), 3_010)).toBe(50 + 160);
  expect(standing(rested(fast, 3_000), 99_000)).toBe(17_000);
});

test("what has come by then is shown", () => {
  const times = schedule([0, 100, 100, 250], false);
  expect([-1, 0, 99, 100, 249, 250, 9_999].map((at) => shownBy(times, at))).toEqual([0, 1, 1, 3, 3, 4, 4]);
});

const ID = "01936d6e-0000-7000-8000-000000000001";
const packet = (seq: number, op: string, p: unknown) => ({ stream_id: ID, seq, op, t: "2026-11-17T04:00:00.000Z", p }) as StreamPacket;
const PACKETS = [
  packet(1, "DELTA", "Hello "),
  packet(2, "ERROR", { code: "timeout", message: "Late.", severity: "TRANSIENT" }),
  packet(3, "EVENT", { id: "1", timestamp: "2026-11-17T04:00:00Z", type: "stream_reset", data: { attempt: 2, after_seq: 0 } }),
  packet(4, "DELTA", "Good day"),
  packet(5, "CLOSE", "completed"),
];

test("a fold is what a viewer had, forwards and backwards", () => {
  const fold = new Fold(PACKETS);
  const seen = (count: number) => {
    const state = fold.upTo(count);
    return state.status === "idle" ? [] : [state.status, state.text];
  };
  expect(seen(1)).toEqual(["streaming", "Hello "]);
  expect(seen(2)).toEqual(["retrying", "Hello "]);
  expect(seen(4)).toEqual(["streaming", "Good day"]);
  expect(seen(5)).toEqual(["closed", "Good day"]);
  expect(seen(1)).toEqual(["streaming", "Hello "]);
  const failed = new Fold([PACKETS[0]!, packet(2, "ERROR", { code: "timeout", message: "Late.", severity: "FATAL" }), packet(3, "CLOSE", "error")]);
  expect(failed.upTo(3).status).toBe("failed");
});

test("frames are read as they were sent, in each face", () => {
  const sent = (seq: number, data: unknown) => `event: stream.packet\nid: ${ID}:${seq}\ndata: ${JSON.stringify(data)}\n\n`;
  const cap = framesOf(`: hello\n\n${PACKETS.map((one) => sent(one.seq, one)).join("")}`, "cap");
  expect(cap.map(({ seq, op, type }) => [seq, op, type])).toEqual([[1, "DELTA", undefined], [2, "ERROR", undefined], [3, "EVENT", "stream_reset"], [4, "DELTA", undefined], [5, "CLOSE", undefined]]);
  expect(cap[0]?.text).toBe(`event: stream.packet\nid: ${ID}:1\ndata: ${JSON.stringify(PACKETS[0])}`);
  const agui = framesOf(`id: ${ID}:7.2\ndata: {"type":"RUN_STARTED"}\n\ndata: nonsense\n\n`, "ag-ui");
  expect(agui.map(({ seq, op }) => [seq, op])).toEqual([[7, "RUN_STARTED"], [7, "?"]]);
});

test.each([
  [{ payload: { payload: { query: "one" } } }, "one"],
  [{ payload: { query: "two" } }, "two"],
  [{ messages: [{ role: "user", content: "old" }, { role: "assistant", content: "no" }, { role: "user", content: [{ type: "text", text: "three" }] }] }, "three"],
  [{ params: { message: { parts: [{ kind: "text", text: "four" }] } } }, "four"],
  [{ input: "five" }, "five"],
  [{ anything: 1 }, ""],
])("what was asked is found in %j", (body, question) => expect(questionOf(JSON.stringify(body))).toBe(question));
