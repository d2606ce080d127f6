// The connection is cut after the exact number of packets, however they arrive, and only by the
// page.
import { afterEach, expect, test, vi } from "vitest";

import { Line } from "../src/line.js";

afterEach(() => vi.unstubAllGlobals());

/** A server that sends all frames at once, and resumes at a cursor. */
function serve(total: number, by?: string): { cursors: (string | null)[] } {
  const cursors: (string | null)[] = [];
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const cursor = new Headers(init.headers).get("last-event-id");
    cursors.push(cursor);
    const after = Number(cursor?.split(":")[1] ?? 0);
    const frames = Array.from(
      { length: total - after },
      (_, n) =>
        `id: s:${after + n + 1}\ndata: {"op":"${after + n + 1 === total ? "CLOSE" : "DELTA"}"}\n\n`,
    );
    return new Response(frames.join(""), {
      headers: { "content-type": "text/event-stream", ...(by && { "x-served-by": by }) },
    });
  });
  return { cursors };
}

const read = async (line: Line, cursor?: string) => {
  const response = await line.fetch("http://test", {
    method: "POST",
    headers: cursor ? { "last-event-id": cursor } : {},
  });
  let text = "";
  const decoder = new TextDecoder();
  try {
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>)
      text += decoder.decode(chunk);
  } catch (error) {
    text += `! ${(error as Error).message}`;
  }
  return { packets: text.split("data:").length - 1, end: /! .*/.exec(text)?.[0] };
};

test("a cut comes after exactly so many packets", async () => {
  serve(10);
  const cuts = vi.fn();
  const line = new Line({ onCut: cuts, onFrame: () => {} });
  line.trouble = { cutEvery: 4, isForgetful: false };
  expect(await read(line)).toEqual({ packets: 4, end: "! you cut the connection" });
  expect(await read(line, "s:8")).toEqual({ packets: 2, end: undefined });
  expect(cuts).toHaveBeenCalledOnce();
});

test("a forgetful line names the stream but not the place", async () => {
  const { cursors } = serve(2);
  const line = new Line({ onCut: () => {}, onFrame: () => {} });
  await read(line, "s:1");
  line.trouble = { cutEvery: 0, isForgetful: true };
  await read(line, "s:1");
  expect(cursors).toEqual(["s:1", "s"]);
});

test("whoever of several gateways answers is told, and one alone is not", async () => {
  const served = vi.fn();
  const line = new Line({ onCut: () => {}, onFrame: () => {}, onServed: served });
  serve(2);
  await read(line);
  expect(served).not.toHaveBeenCalled();
  serve(2, "gateway-2");
  await read(line, "s:1");
  expect(served).toHaveBeenCalledExactlyOnceWith("gateway-2");
});
