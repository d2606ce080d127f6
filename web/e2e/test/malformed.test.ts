// Every type of event malformed, in both faces, on a desktop and on a phone. Only the malformed
// block is affected, and the next question works.
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { ended, lastTurn, say, textOf } from "./browser.js";
import { setStage, soaks } from "./stage.js";

const stage = setStage();
const STREAM = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
const PHONE = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };

/** A word that is longer than any line, in place of a short text. */
const LONG = "W".repeat(3_000);
/** Valid data that hardly fit on a screen. */
const WIDE: [type: string, data: unknown][] = [
  [
    "CITATION_BLOCK",
    {
      citations: [
        {
          source_id: "1",
          uri: `https://example.org/${LONG}`,
          title: LONG,
          snippet: LONG,
          confidence: 1,
        },
      ],
    },
  ],
  ["PROGRESS_INDICATOR", { label: LONG, status: "running", progress_percent: 1e308 }],
  [
    "MEDIA_CAROUSEL",
    {
      items: [
        { url: `https://${"w".repeat(60)}.example/a.png`, mime_type: "image/png", alt_text: LONG },
      ],
    },
  ],
  ["user_error", { message: LONG, code: 1e20, domain: "constructor", retryable: true }],
  ["INTERRUPT", { id: "1", reason: LONG, responseSchema: { properties: { a: { title: LONG } } } }],
];

/** Data that do not match their type. */
const ODD: [type: string, data: unknown][] = [
  [
    "CITATION_BLOCK",
    { citations: [{ source_id: "1", title: "without an address", confidence: 1 }] },
  ],
  ["CITATION_BLOCK", { citations: [null] }],
  [
    "CITATION_BLOCK",
    { citations: [{ source_id: "1", uri: { a: 1 }, title: "odd address", confidence: "high" }] },
  ],
  ["PROGRESS_INDICATOR", { label: { text: "an object" }, status: "running" }],
  ["PROGRESS_INDICATOR", { label: "odd status", status: "constructor", progress_percent: "half" }],
  ["MEDIA_CAROUSEL", { items: [{ url: "data:audio/ogg;base64,aGk=" }] }],
  ["MEDIA_CAROUSEL", { items: {} }],
  ["MARKDOWN_BLOCK", { content: { text: "an object" } }],
  ["THOUGHT_TRACE", { thought: ["a", "list"] }],
  ["user_error", { message: { text: "an object" }, domain: { toString: 1 } }],
  ["user_error", { message: "odd domain", code: "503", domain: 7, retryable: "yes" }],
  ["stream_reset", { after_seq: "all" }],
  ["INTERRUPT", { id: "1", reason: { text: "an object" } }],
  [
    "INTERRUPT",
    {
      id: "1",
      reason: "odd schema",
      responseSchema: { properties: { a: { title: {}, enum: [{ toString: 1 }] } }, required: 7 },
    },
  ],
  ["SOMETHING_NEW", { toString: 1, nested: JSON.parse("[".repeat(900) + "]".repeat(900)) }],
  ["MARKDOWN_BLOCK", null],
];
/** Text that is hard to render. */
const HARD = [
  "[".repeat(100_000),
  ">".repeat(5_000),
  `${"> ".repeat(5_000)}deep`,
  "*a **b ".repeat(2_000),
];

const event = ([type, data]: [string, unknown], n: number) => ({
  id: `${n}`,
  timestamp: "2026-02-03T10:15:37Z",
  type,
  data,
});

function capBody(): string {
  const packets = [
    ...ODD.map(event).map((p) => ["EVENT", p]),
    ...HARD.map((p) => ["DELTA", `\n\n${p}`]),
    ...WIDE.map(event).map((p) => ["EVENT", p]),
    ["DELTA", "\n\nhalf of one: \ud800 the end"],
    ["CLOSE", { reason: LONG }],
  ];
  const frames = packets.map(([op, p], n) => {
    const packet = { stream_id: STREAM, seq: n + 1, op, t: "2026-02-03T10:15:37Z", p };
    return `event: stream.packet\nid: ${STREAM}:${n + 1}\ndata: ${JSON.stringify(packet)}\n\n`;
  });
  return frames.join("");
}

/** The same in AG-UI, with events that only AG-UI has. */
function aguiBody(): string {
  const NAMES: Record<string, string> = {
    CITATION_BLOCK: "citations",
    PROGRESS_INDICATOR: "progress",
    MEDIA_CAROUSEL: "media",
    user_error: "user_error",
  };
  const events = [
    { type: "RUN_STARTED", threadId: { odd: true } },
    ...ODD.map(event).map((value) => ({
      type: "CUSTOM",
      name: `capstan.${NAMES[value.type] ?? "event"}`,
      value,
    })),
    { type: "CUSTOM", name: "capstan.citations", value: "a text" },
    { type: "CUSTOM", name: { odd: true } },
    { type: "CUSTOM", name: "capstan.warning", value: { code: 1 } },
    { type: "CUSTOM", name: "capstan.reset", value: null },
    { type: "TEXT_MESSAGE_CONTENT", messageId: { toString: 1 }, delta: "lost" },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: { odd: true } },
    { type: "REASONING_MESSAGE_CONTENT", messageId: "r", delta: 7 },
    { type: "MESSAGES_SNAPSHOT", messages: [null, 1] },
    { type: "STATE_DELTA", delta: "odd" },
    { type: "TOOL_CALL_ARGS" },
    ...HARD.map((text, n) => ({
      type: "TEXT_MESSAGE_CONTENT",
      messageId: `hard${n}`,
      delta: text,
    })),
    ...WIDE.map(event).map((value) => ({ type: "CUSTOM", name: "capstan.event", value })),
    { type: "TEXT_MESSAGE_CONTENT", messageId: "end", delta: "half of one: \ud800 the end" },
    { type: "RUN_FINISHED", metadata: { capstan: { reason: { odd: true } } } },
  ].map((event) => JSON.stringify(event));
  events.splice(3, 0, "no JSON at all", "[1]", '{"no":"type"}');
  return events.map((data, n) => `id: ${STREAM}:${n}.1\ndata: ${data}\n\n`).join("");
}

async function ask(page: Page, face: "cap" | "ag-ui"): Promise<void> {
  const [path, body] = face === "cap" ? ["**/assist", capBody()] : ["**/ag-ui", aguiBody()];
  await page.route(path, (route) => route.fulfill({ contentType: "text/event-stream", body }), {
    times: 1,
  });
  await page.getByLabel("Face").selectOption(face);
  await say(page, "anything");
  await ended(page, "closed");
}

// Each size and each face once. `make soak` tests all four combinations.
describe.each([
  ["a desk", {}, "cap"],
  ["a phone", PHONE, "ag-ui"],
] as const)("on %s", (_, size, own) => {
  test.each(soaks ? (["cap", "ag-ui"] as const) : [own])(
    "%s: what does not fit is shown raw, and the next question works",
    async (face) => {
      const page = await stage.start(size);
      await ask(page, face);
      const raw = await lastTurn(page).locator("details.raw").allInnerTexts();
      expect(raw.length).toBeGreaterThanOrEqual(ODD.length);
      for (const word of [
        "without an address",
        "odd address",
        "odd status",
        "odd domain",
        "odd schema",
      ])
        expect(raw.join(" "), word).toContain(word);
      if (face === "ag-ui")
        for (const word of ["no JSON at all", '"no":"type"', "lost"])
          expect(raw.join(" "), word).toContain(word);
      expect(await textOf(page)).toMatch(/the end$/);
      expect(
        await page.evaluate(
          () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
        ),
        "no sideways scroll",
      ).toBe(0);
      expect((await lastTurn(page).getByTestId("status").boundingBox())?.height).toBeLessThan(120);

      await say(page, "/tokens 3");
      await ended(page, "closed");
      expect(await textOf(page)).toBe("tok1 tok2 tok3");
      expect(await page.locator(".turn").count()).toBe(2);
    },
  );
});

/** Events that end a run, or violate its protocol. */
const ENDS: [face: "cap" | "ag-ui", data: unknown][] = [
  ["cap", { op: "ERROR", p: { code: { odd: 1 }, message: 7 } }],
  [
    "cap",
    {
      op: "ERROR",
      p: {
        code: "content_refused",
        message: "long ".repeat(20_000),
        severity: "FATAL",
        details: { retry_after: 1e300 },
      },
    },
  ],
  ["cap", { op: "SHOUT", p: "hi" }],
  ["cap", { op: "EVENT", p: "a text" }],
  ["cap", { op: "ERROR", p: { code: LONG, message: LONG, severity: "FATAL" } }],
  ["ag-ui", { type: "RUN_ERROR", code: LONG, message: LONG, retry_after: 1e12 }],
  ["ag-ui", { type: "RUN_ERROR" }],
  [
    "ag-ui",
    {
      type: "RUN_ERROR",
      message: { odd: 1 },
      code: ["x"],
      retry_after: "soon",
      metadata: { capstan: 3 },
    },
  ],
];

test("an unreadable end fails its answer, and the next question works", async () => {
  const page = await stage.start();
  const ends = ENDS.filter((_, n) => soaks || n % 2 === 0);
  for (const [face, data] of ends) {
    const packet =
      face === "cap"
        ? { stream_id: STREAM, seq: 1, t: "2026-02-03T10:15:37Z", ...(data as object) }
        : data;
    await page.route(
      face === "cap" ? "**/assist" : "**/ag-ui",
      (route) =>
        route.fulfill({
          contentType: "text/event-stream",
          body: `data: ${JSON.stringify(packet)}\n\n`,
        }),
      { times: 1 },
    );
    await page.getByLabel("Face").selectOption(face);
    await say(page, "anything");
    await ended(page, "failed");
    const toast = await page.locator("[data-sonner-toast]").first().boundingBox();
    expect(toast?.height).toBeLessThan(600);
    await say(page, "/tokens 3");
    await ended(page, "closed");
    expect(await textOf(page)).toBe("tok1 tok2 tok3");
  }
  expect(await page.locator(".turn").count()).toBe(2 * ends.length);
});

test("a block that breaks all the same is shown raw, and costs itself only", async () => {
  const page = await stage.start();
  // Only the confidence of citations is rounded, so this counts renderings.
  await page.evaluate(() =>
    Object.assign(Math, {
      round: () => {
        throw new Error("planted");
      },
    }),
  );
  await page.evaluate(() => Object.assign(console, { error: () => {} }));
  await say(page, "/events");
  await ended(page, "closed");
  const turn = lastTurn(page);
  expect(await turn.getByText("This could not be shown").count()).toBe(1);
  expect(await turn.locator("details.raw").innerText()).toContain("CITATION_BLOCK");
  expect(await turn.getByRole("progressbar").count()).toBe(1);
  await say(page, "/tokens 3");
  await ended(page, "closed");
  expect(await textOf(page)).toBe("tok1 tok2 tok3");
});
