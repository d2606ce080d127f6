// The chunks of a UI message folded into the blocks that the CAP face gives.
import { Blocks } from "../blocks.js";
import { isObject, isText } from "../json.js";

export type Chunk = Record<string, unknown> & { type: string };

/** Chunks that only say where something begins or ends, or what the same packet says in full. */
const STRUCTURE =
  /^(start|start-step|finish-step|finish|abort|error|text-start|text-end|reasoning-start|reasoning-end|source-url|file|tool-input-(start|delta)|data-capstan-(attempt|error|close))$/;
/** What data of ours is called as an event. */
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

  /** False if it is not known here, or its members do not fit. */
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

  /** A message that goes on begins with what was asked and answered before. */
  #answered(id: unknown): boolean {
    const before = this.blocks.length;
    this.drop(({ type, data }) => type === "INTERRUPT" && isObject(data) && data["id"] === id);
    return this.blocks.length < before;
  }
}
