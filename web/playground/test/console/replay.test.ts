// The replay: at the original speed or faster, with an injected clock.
import type { StreamPacket } from "capstan";
import { expect, test } from "vitest";

import { Fold, type Packets, questionOf, tailOf } from "../../src/console/run/packets.js";
import {
  LONGEST_PAUSE,
  paced,
  played,
  rested,
  RESTING,
  schedule,
  set,
  shownBy,
  standing,
} from "../../src/console/run/replay.js";
import { read, Tape } from "../../src/console/run/tape.js";

const heard = (packets: readonly StreamPacket[]): Packets => ({
  length: packets.length,
  packet: (n) => packets[n],
});

test("packets come as far apart as they came; long pauses are cut where waits are skipped", () => {
  expect(schedule([1_000, 1_200, 31_200, 31_300], false)).toEqual([0, 200, 30_200, 30_300]);
  expect(schedule([1_000, 1_200, 31_200, 31_300], true)).toEqual([
    0,
    200,
    200 + LONGEST_PAUSE,
    300 + LONGEST_PAUSE,
  ]);
  // A timestamp that goes back does not move the replay back.
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
  expect([-1, 0, 99, 100, 249, 250, 9_999].map((at) => shownBy(times, at))).toEqual([
    0, 1, 1, 3, 3, 4, 4,
  ]);
});

const ID = "01936d6e-0000-7000-8000-000000000001";
const packet = (seq: number, op: string, p: unknown) =>
  ({ stream_id: ID, seq, op, t: "2026-11-17T04:00:00.000Z", p }) as StreamPacket;
const PACKETS = [
  packet(1, "DELTA", "Hello "),
  packet(2, "ERROR", { code: "timeout", message: "Late.", severity: "TRANSIENT" }),
  packet(3, "EVENT", {
    id: "1",
    timestamp: "2026-11-17T04:00:00Z",
    type: "stream_reset",
    data: { attempt: 2, after_seq: 0 },
  }),
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
  const failed = heard([
    PACKETS[0]!,
    packet(2, "ERROR", { code: "timeout", message: "Late.", severity: "FATAL" }),
    packet(3, "CLOSE", "error"),
  ]);
  expect(new Fold().upTo(failed, 3).status).toBe("failed");
});

test("going back begins at a stop on the way, and comes to the same", async () => {
  const many = Array.from({ length: 40_000 }, (_, n) =>
    n % 9_000 === 8_999
      ? packet(n + 1, "EVENT", {
          id: "1",
          timestamp: "2026-11-17T04:00:00Z",
          type: "stream_reset",
          data: { attempt: 2, after_seq: n - 4_000 },
        })
      : packet(n + 1, "DELTA", `${n} `),
  );
  let taken = 0;
  const counted: Packets = { length: many.length, packet: (n) => ((taken += 1), many[n]) };
  const fold = new Fold();
  await fold.reach(counted, many.length);
  expect(taken).toBe(many.length);
  for (const place of [39_999, 26_999, 27_001, 9_500, 8_999, 10, 40_000]) {
    taken = 0;
    const state = await fold.reach(counted, place);
    expect(state).toEqual(new Fold().upTo(heard(many), place));
    if (place > 10 && place < 40_000) expect(taken, `to ${place}`).toBeLessThan(8_000);
  }
  const left = new AbortController();
  left.abort();
  expect(await fold.reach(counted, 5, left.signal), "nobody waits for it").toBeUndefined();
});

const sent = (seq: number, data: unknown) =>
  `event: stream.packet\nid: ${ID}:${seq}\ndata: ${JSON.stringify(data)}\n\n`;
const named = (tape: Tape) =>
  Array.from({ length: tape.length }, (_, n) => [tape.seq(n), tape.frame(n).name]);

test("frames are read as they were sent, in each face", async () => {
  const packets = PACKETS.map((one) => sent(one.seq, one)).join("");
  const text = `retry: 500\nid: ${ID}:0\n\n: hello\n\n${packets}`;
  const cap = Tape.EMPTY.with(await read(text, "cap"));
  expect(named(cap)).toEqual([
    [1, "DELTA"],
    [2, "ERROR"],
    [3, "EVENT stream_reset"],
    [4, "DELTA"],
    [5, "CLOSE"],
  ]);
  expect(cap.frame(0).text).toBe(
    `event: stream.packet\nid: ${ID}:1\ndata: ${JSON.stringify(PACKETS[0])}`,
  );
  expect(cap.frame(0).data).toBe(JSON.stringify(PACKETS[0]));
  expect(PACKETS.map((_, n) => cap.packet(n))).toEqual(PACKETS);
  expect(cap.times()).toEqual(PACKETS.map(({ t }) => Date.parse(t)));
  expect(cap.named("DELTA")).toEqual([0, 3]);
  const agui = Tape.EMPTY.with(
    await read(`id: ${ID}:7.2\ndata: {"type":"RUN_STARTED"}\n\ndata: nonsense\n\n`, "ag-ui"),
  );
  expect(named(agui)).toEqual([
    [7, "RUN_STARTED"],
    [7, "?"],
  ]);
});

/** Frames in other forms than the gateway's are parsed slowly, with the same result. */
test.each([
  [
    "in another order",
    (one: StreamPacket) => {
      const reversed = Object.fromEntries(Object.entries(one).reverse());
      return `data: ${JSON.stringify(reversed)}\nid: ${ID}:${one.seq}\n\n`;
    },
  ],
  [
    "in several lines",
    (one: StreamPacket) =>
      `id: ${ID}:${one.seq}\n${JSON.stringify(one, null, 1)
        .split("\n")
        .map((line) => `data: ${line}\n`)
        .join("")}\n`,
  ],
  [
    "with a comment behind it",
    (one: StreamPacket) => sent(one.seq, one).replace(/\n\n$/, "\n: so much for that\n\n"),
  ],
])("a packet %s", async (_, written) => {
  const tape = Tape.EMPTY.with(await read(PACKETS.map(written).join(""), "cap"));
  expect(PACKETS.map((_, n) => tape.packet(n))).toEqual(PACKETS);
  expect(named(tape)).toEqual(
    named(Tape.EMPTY.with(await read(PACKETS.map((one) => sent(one.seq, one)).join(""), "cap"))),
  );
  expect(tape.times()).toEqual(PACKETS.map(({ t }) => Date.parse(t)));
});

test("a tape grows with what is read, and a place on it is found by its packet", async () => {
  const [some, others] = [PACKETS.slice(0, 2), PACKETS.slice(1).filter(({ seq }) => seq !== 3)];
  const before = Tape.EMPTY.with(await read(some.map((one) => sent(one.seq, one)).join(""), "cap"));
  // Frames that the tape has already are not added again.
  const whole = before.with(
    await read(others.map((one) => sent(one.seq, one)).join(""), "cap", before.last),
  );
  expect([before, whole].map((tape) => named(tape).map(([seq]) => seq))).toEqual([
    [1, 2],
    [1, 2, 4, 5],
  ]);
  expect(whole.with(await read("", "cap", 5))).toBe(whole);
  expect([0, 1, 2, 3, 4, 9].map((seq) => whole.placeOf(seq))).toEqual([0, 1, 2, 2, 3, 4]);
  expect(whole.named("DELTA")).toEqual([0, 2]);
});

test("of a long text the end is shown, and it is said how much is not", () => {
  const long = heard([
    packet(1, "DELTA", "a".repeat(50)),
    packet(2, "ERROR", { code: "x", message: "y", severity: "WARNING" }),
    packet(3, "DELTA", "b".repeat(30)),
  ]);
  const state = new Fold().upTo(long, 3);
  expect(tailOf(state, 80)).toEqual({ state, hidden: 0 });
  const { state: shown, hidden } = tailOf(state, 40);
  const texts =
    shown.status === "idle"
      ? []
      : shown.blocks.map((block) => (block.type === "text" ? block.text : block.type));
  expect([texts, hidden]).toEqual([["a".repeat(10), "warning", "b".repeat(30)], 40]);
});

test.each([
  [{ payload: { payload: { query: "one" } } }, "one"],
  [{ payload: { query: "two" } }, "two"],
  [
    {
      messages: [
        { role: "user", content: "old" },
        { role: "assistant", content: "no" },
        { role: "user", content: [{ type: "text", text: "three" }] },
      ],
    },
    "three",
  ],
  [{ params: { message: { parts: [{ kind: "text", text: "four" }] } } }, "four"],
  [{ input: "five" }, "five"],
  [{ anything: 1 }, ""],
])("what was asked is found in %j", (body, question) =>
  expect(questionOf(JSON.stringify(body))).toBe(question),
);
