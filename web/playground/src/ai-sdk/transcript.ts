// Folds the chunks of a UI message into the blocks of the CAP face.
import { Blocks } from "../blocks.js";
import { isObject, isText } from "../json.js";

export type Chunk = Record<string, unknown> & { type: string };

/** Chunks that only begin or end something, or that repeat the same packet. */
const STRUCTURE =
  /^(start|start-step|finish-step|finish|abort|error|text-start|text-end|reasoning-start|reasoning-end|source-url|file|tool-input-(start|delta)|data-capstan-(attempt|error|close))$/;
/** The events for our `data-…` parts. */
const EVENTS: Record<string, string> = {
  "data-progress": "PROGRESS_INDICATOR",
  "data-citations": "CITATION_BLOCK",
  "data-media": "MEDIA_CAROUSEL",
  "data-user-error": "USER_ERROR",
};

export class ChunkTranscript extends Blocks {
  take(chunk: Chunk): void {
    if (!STRUCTURE.test(chunk.type) && !this.#fold(chunk)) this.raw(chunk);
  }

  /** Returns false for an unknown chunk, or if its members do not fit. */
  #fold(chunk: Chunk): boolean {
    const { type, data } = chunk;
    switch (type) {
      case "text-delta":
        return this.say(chunk["id"], chunk["delta"]);
      case "reasoning-delta":
        return (
          isText(chunk["delta"]) &&
          this.show({ type: "THOUGHT_TRACE", data: { thought: chunk["delta"] } })
        );
      case "data-event":
        return isObject(data) && this.show(data);
      case "data-capstan-warning":
        return this.warn(data);
      case "tool-input-available":
        return (
          chunk["toolName"] === "interrupt" &&
          this.show({ type: "INTERRUPT", data: chunk["input"] })
        );
      case "tool-output-available":
        return this.#answered(chunk["toolCallId"]);
      default: {
        const event = EVENTS[type];
        return event !== undefined && this.show({ type: event, data });
      }
    }
  }

  /** A continued message begins with earlier questions and their answers. */
  #answered(id: unknown): boolean {
    const before = this.blocks.length;
    this.drop(({ type, data }) => type === "INTERRUPT" && isObject(data) && data["id"] === id);
    return this.blocks.length < before;
  }
}
