// Every text and every event can be rendered: nothing throws, nothing hangs, and nesting is
// bounded. Uses the server's renderer, where no error boundary hides a failure.
import { type StreamPacket, Transcript } from "capstan";
import fc from "fast-check";
import { renderToStaticMarkup } from "react-dom/server";
import { expect, test } from "vitest";

import { AguiTranscript } from "../src/agui/transcript.js";
import { ChunkTranscript } from "../src/ai-sdk/transcript.js";
import { LONGEST_CODE } from "../src/markdown/CodeBlock.js";
import { highlight, LANGUAGES } from "../src/markdown/highlight.js";
import { loadMarkdown, Markdown } from "../src/markdown/Markdown.js";
import { LONGEST } from "../src/markdown/parser.js";
import { ResponseTranscript } from "../src/openai/transcript.js";
import { raw } from "../src/raw.js";
import { Turn } from "../src/show/Turn.js";
import { AGUI_EVENTS, anyText, anyValue, CHUNKS, EVENTS, nearly, RESPONSE_EVENTS } from "./any.js";

/** The deepest nesting of quotes and markup, with the elements around them. */
const DEEPEST = 24;

await loadMarkdown();

const html = (text: string) => renderToStaticMarkup(<Markdown text={text} />);

/** How deeply elements nest. */
function depthOf(markup: string): number {
  let depth = 0;
  let deepest = 0;
  for (const [tag] of markup.matchAll(/<\/?[a-z][^>]*>/g)) {
    if (tag.endsWith("/>") || /^<(br|hr|img|input)\b/.test(tag)) continue;
    depth += tag.startsWith("</") ? -1 : 1;
    deepest = Math.max(deepest, depth);
  }
  return deepest;
}

/** The most processor time for one rendering in the soak, in seconds. */
const MOST = 10;

/** Renders. The soak also measures processor time, so a busy machine makes no difference. */
function expectQuick(render: () => void): void {
  const before = process.cpuUsage();
  render();
  if (process.env["CAPSTAN_SOAK"]) expect(process.cpuUsage(before).user / 1e6).toBeLessThan(MOST);
}

function shown({ text, blocks }: Pick<Transcript, "text" | "blocks">): string {
  const state = {
    status: "closed",
    reason: "completed",
    text,
    blocks,
    streamId: undefined,
    conversationId: "",
  } as const;
  return renderToStaticMarkup(
    <Turn turn={{ id: "1", question: "?", state }} onRetry={() => {}} onAnswer={() => {}} />,
  );
}

test("any text has a rendering of bounded depth", () => {
  fc.assert(
    fc.property(anyText, (text) => depthOf(html(text)) <= DEEPEST),
    { numRuns: 1_000 },
  );
});

test("no word is lost, whatever marks stand around it", () => {
  const text = fc.string({ unit: fc.constantFrom(..."abc \n*_>#-|"), maxLength: 200 });
  const letters = (text: string) => text.replace(/[^abc]/g, "");
  fc.assert(
    fc.property(text, (text) => letters(html(text).replace(/<[^>]*>/g, "")) === letters(text)),
    { numRuns: 1_000 },
  );
});

/** Markup of longer paragraphs stays text. */
const FITTING = LONGEST - 10;
const MARKS = [
  "[",
  "]",
  "![",
  "*",
  "_",
  "`",
  ">",
  "> ",
  "#",
  "# ",
  "- ",
  "|",
  " ",
  "\t",
  "\n",
  "https://",
  "&<",
];
/** These are always rendered as something, because elements are expensive. */
const PIECES = [
  "[a](",
  "[](x(",
  "[a](b)",
  "**a",
  "*a**b",
  "_a ",
  "`a``b```c",
  ">\n",
  "-\n",
  "| |\n",
  "|-|\n",
  "```\n",
  "1. a\n",
];

test.each([
  ...MARKS.map((piece) => [piece, 100_000] as const),
  ...[...MARKS, "www.", "a@b."].map(
    (piece) => [piece, Math.floor(FITTING / piece.length)] as const,
  ),
  ...PIECES.map((piece) => [piece, 3_000] as const),
])("%j, %i times, is rendered at once", (piece, times) => {
  const text = piece.repeat(times);
  expectQuick(() => {
    for (const odd of [text, `${text}x`, `x${text}`, `# ${text}x\u2028`])
      expect(depthOf(html(odd))).toBeLessThanOrEqual(DEEPEST);
  });
});

/**
 * Many openings and one distant closing: the text behind it is parsed once, not once for each
 * opening.
 */
test.each(["()", "x", "(x)", "[b](c"])("brackets that share an end, before %j", (tail) => {
  expectQuick(() => {
    for (const open of ["[a", "![", "a[b "])
      for (const most of [FITTING / 2, 100_000]) {
        const [begin, end] = [open, tail].map((piece) =>
          piece.repeat(Math.floor(most / piece.length)),
        );
        expect(depthOf(html(`${begin}](${end}`))).toBeLessThanOrEqual(DEEPEST);
      }
  });
});

const CODES = [
  "(",
  "{",
  "[",
  "`${",
  "<a ",
  "</",
  "/*",
  '"',
  "'",
  "\\",
  "#",
  "$(",
  "a: ",
  "- ",
  "0",
  "=>",
  "f(",
  "@",
  "a b ",
  "\n",
];

test.each(Object.keys(LANGUAGES))("code that likes to be odd is coloured at once: %s", (name) => {
  expectQuick(() => {
    for (const piece of CODES) {
      const code = piece.repeat(Math.floor(LONGEST_CODE / piece.length));
      const shown = renderToStaticMarkup(highlight(code, name));
      expect(depthOf(shown)).toBeLessThanOrEqual(DEEPEST);
      expect(shown.replace(/<[^>]*>/g, "").length).toBeGreaterThanOrEqual(code.length);
    }
  });
});

const anyEvent = fc.oneof(...EVENTS.map(nearly), anyValue);

test("any event is shown, or shown raw", () => {
  const isObject = (value: unknown) =>
    typeof value === "object" && value !== null && !Array.isArray(value);
  const packets = fc.array(
    fc.oneof(
      anyEvent.filter(isObject).map((p) => ({ op: "EVENT", p })),
      anyText.map((p) => ({ op: "DELTA", p })),
    ),
    { maxLength: 6 },
  );
  const render = (packets: object[]) => {
    const transcript = new Transcript();
    packets.forEach((packet, n) => transcript.take({ seq: n + 1, ...packet } as StreamPacket));
    return depthOf(shown(transcript)) <= DEEPEST;
  };
  fc.assert(fc.property(packets, render), { numRuns: 300 });
});

const FOLDS: [
  string,
  readonly { type: string }[],
  new () => Pick<Transcript, "text" | "blocks"> & { take: (event: never) => void },
][] = [
  ["AG-UI event", AGUI_EVENTS, AguiTranscript],
  ["event of a response", RESPONSE_EVENTS, ResponseTranscript],
  ["chunk of the AI SDK's", CHUNKS, ChunkTranscript],
];

test.each(FOLDS)("any %s is shown, or shown raw", (_, samples, Fold) => {
  const anyOfThem = fc.oneof(
    ...samples.map((event) =>
      nearly(event).map((found) => ({ ...(found as object), type: event.type })),
    ),
  );
  const render = (events: object[]) => {
    const transcript = new Fold();
    for (const event of events) transcript.take(event as never);
    return depthOf(shown(transcript)) <= DEEPEST;
  };
  fc.assert(fc.property(fc.array(anyOfThem, { maxLength: 6 }), render), { numRuns: 300 });
});

test("what does not fit is shown as it came, and its neighbours as they should be", () => {
  const transcript = new Transcript();
  const odd = { type: "CITATION_BLOCK", data: { citations: [{ title: "no address" }] } };
  [odd, EVENTS[4]].forEach((p, n) =>
    transcript.take({ seq: n + 1, op: "EVENT", p } as unknown as StreamPacket),
  );
  const markup = shown(transcript);
  expect(markup).toContain("CITATION_BLOCK, unchanged");
  expect(markup).toContain("&quot;title&quot;: &quot;no address&quot;");
  expect(markup).toContain("<strong>bold</strong>");
});

test("raw text is bounded, even of what no writer can follow", () => {
  expect(raw({ a: "x".repeat(1e6) }).length).toBeLessThan(30_000);
  expect(raw(JSON.parse("[".repeat(200_000) + "]".repeat(200_000)))).toMatch(/too deeply|^\[/);
  expect(raw(undefined)).toBe("undefined");
  fc.assert(fc.property(anyValue, (value) => typeof raw(value) === "string"));
});
