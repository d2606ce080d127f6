// The replay: at the speed at which it came, or faster, on a clock that is handed in.
import type { StreamPacket } from "capstan";
import { expect, test } from "vitest";

import { Fold, framesOf, type Heard, placeOf, questionOf, tailOf, Tape } from "../../src/console/run/packets.js";
import { LONGEST_PAUSE, paced, played, rested, RESTING, schedule, set, shownBy, standing } from "../../src/console/run/replay.js";

const at = (times: readonly number[]) => times.map((time) => ({ time }));
const heard = (packets: readonly StreamPacket[]): readonly Heard[] => packets.map((packet) => ({ packet, time: Date.parse(packet.t) }));

test("packets come as far apart as they came; long pauses are cut where waits are skipped", () => {
  expect(schedule(at([1_000, 1_200, 31_200, 31_300]), false)).toEqual([0, 200, 30_200, 30_300]);
  expect(schedule(at([1_000, 1_200, 31_200, 31_300]), true)).toEqual([0, 200, 200 + LONGEST_PAUSE, 300 + LONGEST_PAUSE]);
  // A stamp that goes back is no reason to.
  expect(schedule(at([1_000, 900, 1_000]), false)).toEqual([0, 0, 100]);
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
  const times = schedule(at([0, 100, 100, 250]), false);
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
  const fold = new Fold();
  const seen = (count: number) => {
    const state = fold.upTo(heard(PACKETS), count);
    return state.status === "idle" ? [] : [state.status, state.text];
  };
  expect(seen(1)).toEqual(["streaming", "Hello "]);
  expect(seen(2)).toEqual(["retrying", "Hello "]);
  expect(seen(4)).toEqual(["streaming", "Good day"]);
  expect(seen(5)).toEqual(["closed", "Good day"]);
  expect(seen(1)).toEqual(["streaming", "Hello "]);
  const failed = heard([PACKETS[0]!, packet(2, "ERROR", { code: "timeout", message: "Late.", severity: "FATAL" }), packet(3, "CLOSE", "error")]);
  expect(new Fold().upTo(failed, 3).status).toBe("failed");
});

test("frames are read as they were sent, in each face", () => {
  const sent = (seq: number, data: unknown) => `event: stream.packet\nid: ${ID}:${seq}\ndata: ${JSON.stringify(data)}\n\n`;
  const cap = framesOf(`: hello\n\n${PACKETS.map((one) => sent(one.seq, one)).join("")}`, "cap");
  expect(cap.map(({ seq, op, type }) => [seq, op, type])).toEqual([[1, "DELTA", undefined], [2, "ERROR", undefined], [3, "EVENT", "stream_reset"], [4, "DELTA", undefined], [5, "CLOSE", undefined]]);
  expect(cap[0]?.text).toBe(`event: stream.packet\nid: ${ID}:1\ndata: ${JSON.stringify(PACKETS[0])}`);
  const agui = framesOf(`id: ${ID}:7.2\ndata: {"type":"RUN_STARTED"}\n\ndata: nonsense\n\n`, "ag-ui");
  expect(agui.map(({ seq, op }) => [seq, op])).toEqual([[7, "RUN_STARTED"], [7, "?"]]);
});

test("a tape grows with what is read, and a place on it is found by its packet", () => {
  const frames = PACKETS.map((packet) => ({ seq: packet.seq, op: packet.op, type: undefined, text: "", data: "", packet: packet.seq === 3 ? undefined : packet }));
  const tape = new Tape();
  const before = tape.grown(frames.slice(0, 2));
  const whole = tape.grown(frames);
  expect([before, whole].map((some) => some.map(({ packet }) => packet.seq))).toEqual([[1, 2], [1, 2, 4, 5]]);
  expect([0, 1, 2, 3, 4, 9].map((seq) => placeOf(whole, seq))).toEqual([0, 1, 2, 2, 3, 4]);
});

test("of a long text the end is shown, and it is said how much is not", () => {
  const long = heard([packet(1, "DELTA", "a".repeat(50)), packet(2, "ERROR", { code: "x", message: "y", severity: "WARNING" }), packet(3, "DELTA", "b".repeat(30))]);
  const state = new Fold().upTo(long, 3);
  expect(tailOf(state, 80)).toEqual({ state, hidden: 0 });
  const { state: shown, hidden } = tailOf(state, 40);
  const texts = shown.status === "idle" ? [] : shown.blocks.map((block) => (block.type === "text" ? block.text : block.type));
  expect([texts, hidden]).toEqual([["a".repeat(10), "warning", "b".repeat(30)], 40]);
});

test.each([
  [{ payload: { payload: { query: "one" } } }, "one"],
  [{ payload: { query: "two" } }, "two"],
  [{ messages: [{ role: "user", content: "old" }, { role: "assistant", content: "no" }, { role: "user", content: [{ type: "text", text: "three" }] }] }, "three"],
  [{ params: { message: { parts: [{ kind: "text", text: "four" }] } } }, "four"],
  [{ input: "five" }, "five"],
  [{ anything: 1 }, ""],
])("what was asked is found in %j", (body, question) => expect(questionOf(JSON.stringify(body))).toBe(question));
