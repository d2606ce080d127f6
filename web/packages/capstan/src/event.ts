// Presentation events: the raw object of an EVENT packet is kept; this view types it on demand and never fails.
import type {
  CitationBlock,
  CitationItem,
  MarkdownBlock,
  MediaCarousel,
  ProgressUpdate,
  StreamReset,
  ThoughtTrace,
  UserErrorData,
} from "./generated/wire.js";
import { asCount, asObject, asText, isObject, type JsonObject } from "./text.js";

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

/** Types an event of either profile. */
export function viewEvent(event: JsonObject): EventView {
  const data = asObject(event["data"]);
  const view = data && read((asText(event["type"]) ?? "").toUpperCase(), data);
  return view ?? { type: "other", data: event };
}

function read(type: string, data: JsonObject): EventView | undefined {
  switch (type) {
    case "CITATION_BLOCK":
      return citations(data);
    case "PROGRESS_INDICATOR":
      return asText(data["label"]) === undefined ? undefined : { type: "progress", data: data as ProgressUpdate };
    case "MEDIA_CAROUSEL":
      return isList(data["items"], "url") ? { type: "media", data: data as MediaCarousel } : undefined;
    case "MARKDOWN_BLOCK":
      return asText(data["content"]) === undefined ? undefined : { type: "markdown", data: data as MarkdownBlock };
    case "THOUGHT_TRACE":
      return asText(data["thought"]) === undefined ? undefined : { type: "thought", data: data as ThoughtTrace };
    case "USER_ERROR":
      return asText(data["message"]) === undefined ? undefined : { type: "user_error", data: data as UserErrorData };
    case "STREAM_RESET":
      return asCount(data["after_seq"]) === undefined ? undefined : { type: "reset", data: data as StreamReset };
    default:
      return undefined;
  }
}

/** v2 keeps citations under `items`. */
function citations(data: JsonObject): EventView | undefined {
  const list = data["citations"] ?? data["items"];
  return isList(list, "title") ? { type: "citations", data: { citations: list as CitationItem[] } } : undefined;
}

function isList(value: unknown, member: string): boolean {
  return Array.isArray(value) && value.every((item) => isObject(item) && typeof item[member] === "string");
}
