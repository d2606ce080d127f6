// Server-sent events by the rules, however the bytes are split.
import { expect, test } from "vitest";

import { Decoder } from "../src/sse.js";

const TEXT =
  "\uFEFFretry: 250\nid: 1\ndata: a\ndata\n\n" +
  ": beat\r\rid\revent: x\rdata:b\r\r\nevent: y\r\nid: 2\r\n\r\n" +
  "data:  ü\u2028 🦀\n\nid: 3\ndata: cut off";
const FRAMES = [
  { event: "message", data: "a\n", id: "1" },
  { event: "x", data: "b", id: "" },
  { event: "message", data: " ü\u2028 🦀", id: undefined },
];

function frames(...chunks: Uint8Array[]) {
  const decoder = new Decoder();
  const found = [];
  for (const chunk of chunks) {
    decoder.push(chunk);
    for (let frame = decoder.take(); frame; frame = decoder.take()) {
      found.push({ event: frame.event, data: frame.data, id: frame.id });
    }
  }
  return { found, id: decoder.lastEventId, retry: decoder.retry };
}

test("any split of the bytes gives the same frames", () => {
  const bytes = new TextEncoder().encode(TEXT);
  const whole = frames(bytes);
  expect(whole).toEqual({ found: FRAMES, id: "2", retry: 250 });
  for (let at = 0; at <= bytes.length; at += 1)
    expect(frames(bytes.slice(0, at), bytes.slice(at))).toEqual(whole);
  expect(frames(...Array.from(bytes, (byte) => Uint8Array.of(byte)))).toEqual(whole);
});

test("an id counts when its frame is taken, not when it came", () => {
  const decoder = new Decoder();
  decoder.pushText("id: 1\ndata: a\n\nid: 2\ndata: b\n\n");
  decoder.take();
  expect(decoder.lastEventId).toBe("1");
});

// A decoder that reads the line again for each chunk would read 128 GB.
test("a long line in many chunks costs no more than its length", () => {
  const decoder = new Decoder();
  const chunk = "x".repeat(1000);
  decoder.pushText("data: ");
  for (let n = 0; n < 16_000; n += 1) decoder.pushText(chunk);
  decoder.pushText("\n\n");
  expect(decoder.take()?.data.length).toBe(16_000_000);
});

test("a frame without end is refused", () => {
  const decoder = new Decoder();
  for (let n = 0; n < 17; n += 1) decoder.pushText("x".repeat(1024 * 1024));
  expect(() => decoder.take()).toThrow("larger than");
});

test("heartbeats never add up to a frame", () => {
  const decoder = new Decoder();
  for (let n = 0; n < 100; n += 1) decoder.pushText(`:${"x".repeat(1024 * 1024)}\n`);
  expect(decoder.take()).toBeUndefined();
});
