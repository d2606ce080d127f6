// The content of a stream as a viewer has it: text and events in their order, with resets applied.
import { type EventView, viewEvent } from "./event.js";
import type { StreamError, StreamPacket } from "./generated/wire.js";
import { asObject, asText, type JsonObject } from "./text.js";

/** A piece of an answer: continuous text, or an event between texts. */
export type Block =
  | { type: "text"; seq: number; text: string }
  | { type: "event"; seq: number; event: JsonObject; view: EventView }
  /** A WARNING: the run continued. */
  | { type: "warning"; seq: number; error: StreamError };

/** A folded stream. */
export class Transcript {
  /** The CLOSE of the stream, once it has come. */
  close: string | Record<string, unknown> | undefined;
  /** The last error, of any severity. */
  error: StreamError | undefined;

  #blocks: Block[] = [];
  /**
   * For each packet with text: its seq, its block, and the length of that block afterwards. A reset
   * finds its place here.
   */
  #marks: { seq: number; at: number; length: number }[] = [];

  /** A copy, which changes independently. */
  fork(): Transcript {
    const other = Object.assign(new Transcript(), { close: this.close, error: this.error });
    other.#blocks = [...this.#blocks];
    other.#marks = [...this.#marks];
    return other;
  }

  /** Takes the next packet. */
  take(packet: StreamPacket): void {
    switch (packet.op) {
      case "DELTA":
        return this.#say(packet.seq, packet.p);
      case "EVENT":
        return this.#show(packet.seq, packet.p);
      case "ERROR":
        this.error = packet.p;
        if (packet.p.severity === "WARNING")
          this.#blocks.push({ type: "warning", seq: packet.seq, error: packet.p });
        return;
      case "CLOSE":
        this.close = packet.p;
    }
  }

  #say(seq: number, text: string): void {
    const last = this.#blocks.at(-1);
    // Blocks are replaced and never changed, so that code can compare them.
    if (last?.type === "text")
      this.#blocks[this.#blocks.length - 1] = { ...last, text: last.text + text };
    else this.#blocks.push({ type: "text", seq, text });
    const at = this.#blocks.length - 1;
    this.#marks.push({
      seq,
      at,
      length: (last?.type === "text" ? last.text.length : 0) + text.length,
    });
  }

  #show(seq: number, event: JsonObject): void {
    const view = viewEvent(event);
    if (view.type === "reset") this.#reset(view.data.after_seq);
    else this.#blocks.push({ type: "event", seq, event, view });
  }

  #reset(after: number): void {
    this.#marks = this.#marks.filter(({ seq }) => seq <= after);
    this.#blocks = this.#blocks.filter(({ seq }) => seq <= after);
    const mark = this.#marks.at(-1);
    const block = mark && this.#blocks[mark.at];
    if (block?.type === "text")
      this.#blocks[mark!.at] = { ...block, text: block.text.slice(0, mark!.length) };
  }

  /** Text and events in their order. A copy. */
  get blocks(): readonly Block[] {
    return [...this.#blocks];
  }

  /** The text so far. */
  get text(): string {
    return this.#blocks.map((block) => (block.type === "text" ? block.text : "")).join("");
  }

  /** Why the answer ended, once it has: `completed`, `cancelled`, `length`, … */
  get reason(): string | undefined {
    if (this.close === undefined || typeof this.close === "string") return this.close;
    return asText(this.close["reason"]) ?? "completed";
  }

  /** The usage, if the server sent it at the end. */
  get usage(): Record<string, unknown> | undefined {
    return asObject(asObject(this.close)?.["usage"]);
  }
}
