// What a stream amounts to: text and events as a viewer has them, in their order, resets applied.
import { type EventView, viewEvent } from "./event.js";
import type { StreamError, StreamPacket } from "./generated/wire.js";
import { asObject, asText, type JsonObject } from "./text.js";

/** A piece of an answer: text that runs on, or an event between texts. */
export type Block =
  | { type: "text"; seq: number; text: string }
  | { type: "event"; seq: number; event: JsonObject; view: EventView }
  /** A WARNING: the run went on. */
  | { type: "warning"; seq: number; error: StreamError };

/** A stream, folded. */
export class Transcript {
  /** The stream's own end, once it has come. */
  close: string | Record<string, unknown> | undefined;
  /** The last error, of whatever severity. */
  error: StreamError | undefined;

  #blocks: Block[] = [];
  /**
   * For each packet with text: its seq, its block, and how long that was afterwards; a reset finds
   * its place here.
   */
  #marks: { seq: number; at: number; length: number }[] = [];

  /** Another one that stands where this one does, and goes its own way from here. */
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
    // Blocks are replaced, never changed, so that code can compare them.
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

  /** Text and events in their order. A copy: it does not change. */
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

  /** What the answer took, if the server said so at its end. */
  get usage(): Record<string, unknown> | undefined {
    return asObject(asObject(this.close)?.["usage"]);
  }
}
