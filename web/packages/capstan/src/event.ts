// Presentation events. The raw object of an EVENT packet stays unchanged; this view types it on
// demand and never fails.
import type {
  CitationBlock,
  MarkdownBlock,
  MediaCarousel,
  ProgressUpdate,
  StreamReset,
  ThoughtTrace,
  UserErrorData,
} from "./generated/wire.js";
import { asCount, asText, isObject, type JsonObject } from "./text.js";

/** An event, typed. */
export type EventView =
  | { type: "citations"; data: CitationBlock }
  | { type: "progress"; data: ProgressUpdate }
  | { type: "media"; data: MediaCarousel }
  | { type: "markdown"; data: MarkdownBlock }
  | { type: "thought"; data: ThoughtTrace }
  | { type: "user_error"; data: UserErrorData }
  | { type: "reset"; data: StreamReset }
  /** An unknown type, or data of an unknown form. */
  | { type: "other"; data: unknown };

/** The event with which an attempt takes back an earlier attempt's output. */
export const STREAM_RESET = "stream_reset";

type Check = (value: unknown) => boolean;

const text: Check = (value) => typeof value === "string";
const flag: Check = (value) => typeof value === "boolean";
const count: Check = (value) => asCount(value) !== undefined;
const status: Check = (value) => value === "running" || value === "complete" || value === "failed";
const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined || value === null || check(value);
const list =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(check);
const object =
  (members: Record<string, Check>): Check =>
  (value) =>
    isObject(value) && Object.entries(members).every(([name, check]) => check(value[name]));

const CITATION = object({
  source_id: text,
  uri: text,
  title: text,
  snippet: optional(text),
  confidence: optional(Number.isFinite),
});
const MEDIUM = object({ url: text, mime_type: text, alt_text: optional(text) });

/** The view of each type of event, and the check of its data. */
const BLOCKS = new Map<string, [EventView["type"], Check]>([
  ["CITATION_BLOCK", ["citations", object({ citations: list(CITATION) })]],
  [
    "PROGRESS_INDICATOR",
    ["progress", object({ label: text, status, progress_percent: optional(Number.isFinite) })],
  ],
  ["MEDIA_CAROUSEL", ["media", object({ items: list(MEDIUM) })]],
  ["MARKDOWN_BLOCK", ["markdown", object({ content: text })]],
  ["THOUGHT_TRACE", ["thought", object({ thought: text })]],
  [
    "USER_ERROR",
    [
      "user_error",
      object({
        message: text,
        code: optional(Number.isFinite),
        domain: optional(text),
        retryable: optional(flag),
      }),
    ],
  ],
  ["STREAM_RESET", ["reset", object({ after_seq: count })]],
]);

/**
 * Types an event of either profile. If a member has the wrong type, the view is `other`, so that
 * code that shows a view need not check members.
 */
export function viewEvent(event: JsonObject): EventView {
  const [type, fits] = BLOCKS.get((asText(event["type"]) ?? "").toUpperCase()) ?? [];
  const data = type === "citations" ? citations(event["data"]) : event["data"];
  return fits?.(data) ? ({ type, data } as EventView) : { type: "other", data: event };
}

/** v2 has citations under `items`, and no confidence. */
function citations(data: unknown): unknown {
  return isObject(data) ? { citations: data["citations"] ?? data["items"] } : data;
}
