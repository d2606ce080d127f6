// Folds the events of a response into the blocks of the CAP face.
import { Blocks } from "../blocks.js";
import { isObject, isText } from "../json.js";

export type ResponseEvent = Record<string, unknown> & { type: string };

/** Events that only begin or end something, or that repeat earlier pieces. */
const STRUCTURE =
  /^(error|response\.(created|in_progress|completed|incomplete|failed|output_item\.added|content_part\.(added|done)|output_text\.done|reasoning_summary_part\.(added|done)|reasoning_summary_text\.delta|function_call_arguments\.(delta|done)))$/;

export class ResponseTranscript extends Blocks {
  take(event: ResponseEvent): void {
    if (!STRUCTURE.test(event.type) && !this.#fold(event)) this.raw(event);
  }

  /** Returns false for an unknown event, or if its members do not fit. */
  #fold(event: ResponseEvent): boolean {
    switch (event.type) {
      case "response.output_text.delta":
        return this.sayOn(event["delta"]);
      case "response.reasoning_summary_text.done":
        return (
          isText(event["text"]) &&
          this.show({ type: "THOUGHT_TRACE", data: { thought: event["text"] } })
        );
      case "response.output_text.annotation.added":
        return this.#cite(event["annotation"]);
      case "response.output_item.done":
        return this.#item(event["item"]);
      // An event that OpenAI does not have, and that the page has requested.
      case "capstan.event":
        return isObject(event["event"]) && this.show(event["event"]);
      case "capstan.warning":
        return this.warn(event["error"]);
      default:
        return false;
    }
  }

  /** Sources come one by one, and are shown together. */
  #cite(annotation: unknown): boolean {
    if (!isObject(annotation) || !isText(annotation["url"]) || !isText(annotation["title"]))
      return false;
    const { url, title } = annotation as { url: string; title: string };
    const last = this.blocks.at(-1);
    const earlier =
      last?.type === "event" && last.view.type === "citations" ? last.view.data.citations : [];
    if (earlier.length > 0) this.drop((event) => last?.type === "event" && event === last.event);
    return this.show({
      type: "CITATION_BLOCK",
      data: { citations: [...earlier, { source_id: url, uri: url, title }] },
    });
  }

  /**
   * Text and thoughts have come in pieces; a call comes as a whole. A call of `interrupt` is a
   * question to the user.
   */
  #item(item: unknown): boolean {
    if (!isObject(item)) return false;
    if (item["type"] !== "function_call") return true;
    const interrupt =
      item["name"] === "interrupt" && isText(item["arguments"])
        ? parsed(item["arguments"])
        : undefined;
    if (interrupt === undefined) return false;
    return this.show({ type: "INTERRUPT", data: interrupt });
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
