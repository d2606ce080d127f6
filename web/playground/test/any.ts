// Random agent output: values that are nearly valid, and values that are not.
import fc from "fast-check";

/** Text with more markup than words. */
export const anyText = fc.oneof(
  fc.string({
    unit: fc.constantFrom(..."ab1 \n\t`*_[]()!>#-+|~:/.\\<&\r\u2028ü🦀"),
    maxLength: 300,
  }),
  fc
    .array(
      fc.constantFrom(
        "**",
        "__",
        "```",
        "https://",
        "http://x",
        "![",
        "](",
        "> ",
        "- ",
        "1. ",
        "# ",
        "| a |",
        "|---|",
        "\n",
        " ",
        "word",
        "*",
        "_",
        "`",
      ),
      { maxLength: 60 },
    )
    .map((parts) => parts.join("")),
  fc.string({ unit: "binary" }),
);

/** Any JSON, with members that deceive code without checks. */
export const anyValue: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 20, arbitrary: fc.jsonValue() },
  { weight: 20, arbitrary: anyText },
  {
    weight: 20,
    arbitrary: fc.constantFrom<unknown>(
      null,
      "",
      0,
      -1,
      1e308,
      true,
      [],
      {},
      [null],
      { toString: 1 },
      { length: 3 },
      JSON.parse('{"__proto__":{"x":1}}'),
      "constructor",
      "__proto__",
    ),
  },
  { weight: 1, arbitrary: fc.constant(20_000).map(deep) },
);

/** Nested as deeply as the JSON parser allows. Few serialisers can write it. */
function deep(depth: number): unknown {
  return JSON.parse("[".repeat(depth) + "]".repeat(depth));
}

/**
 * An object that is nearly `sample`: some of its members, at any depth, are replaced or missing.
 */
export function nearly(sample: unknown): fc.Arbitrary<unknown> {
  if (typeof sample !== "object" || sample === null)
    return fc.oneof({ weight: 3, arbitrary: fc.constant(sample) }, anyValue);
  const inner = Array.isArray(sample)
    ? fc.tuple(...sample.map(nearly))
    : fc.record(
        Object.fromEntries(Object.entries(sample).map(([name, value]) => [name, nearly(value)])),
        { requiredKeys: [] },
      );
  return fc.oneof({ weight: 6, arbitrary: inner }, anyValue);
}

const event = (type: string, data: unknown) => ({
  id: "7c9e6679-7425-40de-944b-e07fc1f90ae7",
  timestamp: "2026-02-03T10:15:37Z",
  type,
  data,
});

/** One valid example of each event. */
export const EVENTS = [
  event("CITATION_BLOCK", {
    citations: [
      {
        source_id: "1",
        uri: "https://example.org",
        title: "On capstans",
        snippet: "…",
        confidence: 0.9,
      },
    ],
  }),
  event("citation_block", {
    items: [{ source_id: "1", uri: "https://example.org", title: "On capstans" }],
  }),
  event("PROGRESS_INDICATOR", { label: "Looking", status: "running", progress_percent: 0.4 }),
  event("MEDIA_CAROUSEL", {
    items: [
      { url: "https://example.org/a.png", mime_type: "image/png", alt_text: "A capstan" },
      { url: "data:audio/ogg;base64,aGk=", mime_type: "audio/ogg" },
    ],
  }),
  event("MARKDOWN_BLOCK", { content: "**bold**" }),
  event("THOUGHT_TRACE", { thought: "Hm." }),
  event("user_error", {
    message: "The search is down.",
    code: 503,
    domain: "tool",
    retryable: true,
  }),
  event("stream_reset", { attempt: 2, after_seq: 1 }),
  event("INTERRUPT", {
    id: "1",
    reason: "input_required",
    message: "Blue?",
    responseSchema: {
      properties: {
        colour: { type: "string", title: "Colour", enum: ["blue", 1, null] },
        sure: { type: "boolean" },
      },
      required: ["colour"],
    },
  }),
  event("TOOL_CALL_START", { toolCallId: "1", toolCallName: "search" }),
];

const AGUI_NAMES: Readonly<Record<string, string>> = {
  CITATION_BLOCK: "citations",
  PROGRESS_INDICATOR: "progress",
  MEDIA_CAROUSEL: "media",
  user_error: "user_error",
};

/** One example of each AG-UI event with content. */
export const AGUI_EVENTS = [
  { type: "RUN_STARTED", threadId: "t", runId: "r" },
  { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "Hello" },
  { type: "TEXT_MESSAGE_END", messageId: "m" },
  { type: "REASONING_MESSAGE_CONTENT", messageId: "n", delta: "Hm." },
  { type: "MESSAGES_SNAPSHOT", messages: [{ id: "m", role: "assistant", content: "Hell" }] },
  { type: "TOOL_CALL_START", toolCallId: "1", toolCallName: "search" },
  { type: "STATE_SNAPSHOT", snapshot: { a: 1 } },
  ...EVENTS.map((value) => ({
    type: "CUSTOM",
    name: `capstan.${AGUI_NAMES[value.type] ?? "event"}`,
    value,
  })),
  {
    type: "CUSTOM",
    name: "capstan.warning",
    value: { code: "upstream_error", message: "Slow.", severity: "WARNING" },
  },
  {
    type: "CUSTOM",
    name: "capstan.attempt_failed",
    value: { code: "timeout", message: "Late.", severity: "TRANSIENT" },
  },
  {
    type: "CUSTOM",
    name: "capstan.reset",
    value: { attempt: 2, after_seq: 1, dropped: [EVENTS[0]?.id] },
  },
  {
    type: "RUN_FINISHED",
    threadId: "t",
    runId: "r",
    metadata: { capstan: { reason: "completed" } },
  },
  {
    type: "RUN_FINISHED",
    threadId: "t",
    runId: "r",
    outcome: {
      type: "interrupt",
      interrupts: [
        { id: "1", reason: "input_required", responseSchema: { properties: { colour: {} } } },
      ],
    },
  },
];

/** One example of each response event with content. */
export const RESPONSE_EVENTS = [
  {
    type: "response.created",
    sequence_number: 0,
    response: { id: "resp_1", status: "in_progress" },
  },
  { type: "response.output_text.delta", item_id: "msg_1", delta: "Hello" },
  { type: "response.reasoning_summary_text.done", item_id: "rs_1", text: "Hm." },
  {
    type: "response.output_text.annotation.added",
    annotation: { type: "url_citation", url: "https://example.org", title: "On capstans" },
  },
  {
    type: "response.output_item.done",
    item: { type: "function_call", name: "search", call_id: "1", arguments: "{}" },
  },
  {
    type: "response.output_item.done",
    item: {
      type: "function_call",
      name: "interrupt",
      call_id: "1",
      arguments: '{"id":"1","reason":"input_required"}',
    },
  },
  ...EVENTS.map((event) => ({ type: "capstan.event", event })),
  {
    type: "capstan.warning",
    error: { code: "upstream_error", message: "Slow.", severity: "WARNING" },
  },
];

/** One example of each chunk of the AI SDK. */
export const CHUNKS = [
  { type: "start", messageId: "m" },
  { type: "text-delta", id: "1", delta: "Hello" },
  { type: "reasoning-delta", id: "2", delta: "Hm." },
  { type: "data-progress", id: "Looking", data: EVENTS[2]?.data },
  { type: "data-citations", id: "3", data: EVENTS[0]?.data },
  { type: "data-media", id: "4", data: EVENTS[3]?.data },
  { type: "data-user-error", id: "5", data: EVENTS[6]?.data },
  { type: "data-event", id: "6", data: EVENTS[9] },
  {
    type: "data-capstan-warning",
    id: "7",
    data: { code: "upstream_error", message: "Slow.", severity: "WARNING" },
  },
  { type: "tool-input-available", toolCallId: "1", toolName: "interrupt", input: EVENTS[8]?.data },
  { type: "tool-output-available", toolCallId: "1", output: 1 },
  { type: "finish", finishReason: "stop" },
];
