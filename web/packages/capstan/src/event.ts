// Presentation events: the raw object of an EVENT packet is kept; this view types it on demand
// and never fails.
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
  /** A type that is not known here, or data that does not fit. */
  | { type: "other"; data: unknown };

/** The event by which an attempt takes back what an earlier one said. */
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

/** What each type of event is shown as, and what its data must hold for that. */
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
 * Types an event of either profile. A member of the wrong kind makes it an `other`, so that code
 * that shows a view need not check its members.
 */
export function viewEvent(event: JsonObject): EventView {
  const [type, fits] = BLOCKS.get((asText(event["type"]) ?? "").toUpperCase()) ?? [];
  const data = type === "citations" ? citations(event["data"]) : event["data"];
  return fits?.(data) ? ({ type, data } as EventView) : { type: "other", data: event };
}

/** v2 keeps citations under `items`, and has no confidence. */
function citations(data: unknown): unknown {
  return isObject(data) ? { citations: data["citations"] ?? data["items"] } : data;
}
