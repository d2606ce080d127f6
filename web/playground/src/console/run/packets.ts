// The run as a user saw it: its packets folded up to a position. And the user's question.
import { CAPRuntimeError, type StreamPacket, Transcript } from "capstan";
import type { CapStreamState } from "capstan/react";

import { isObject, isText } from "../../json.js";
import { Pace } from "./pace.js";

/** The source of packets. Invalid ones are skipped. */
export interface Packets {
  readonly length: number;
  packet: (n: number) => StreamPacket | undefined;
}

/** The number of packets that can be folded without a noticeable delay. */
const AT_ONCE = 300;
/** The initial number of packets between two stops. */
const APART = 1_000;
/** The most stops. Beyond it every second one is dropped. */
const MOST_STOPS = 16;

/** A fold at a position. */
interface Stop {
  taken: number;
  transcript: Transcript;
  failure: StreamPacket | undefined;
}

/** Folds packets up to a position. Going forward is cheap; going back starts at a stop. */
export class Fold {
  #at = beginning();
  #stops: Stop[] = [];
  #apart = APART;

  /** Whether a position is so close that the caller can wait for it. */
  isNear(count: number): boolean {
    return count >= this.#at.taken && count - this.#at.taken <= AT_ONCE;
  }

  /** The state of a viewer after `count` packets. The packets may have grown, but not changed. */
  upTo(packets: Packets, count: number): CapStreamState {
    const end = this.#begin(packets, count);
    while (this.#at.taken < end) this.#take(packets);
    return this.#state();
  }

  /** The same in pieces that yield to other tasks. Undefined if the signal aborts. */
  async reach(
    packets: Packets,
    count: number,
    signal?: AbortSignal,
  ): Promise<CapStreamState | undefined> {
    const pace = new Pace();
    const end = this.#begin(packets, count);
    while (this.#at.taken < end) {
      if (pace.isOver) await pace.rest();
      if (signal?.aborted) return undefined;
      this.#take(packets);
    }
    return this.#state();
  }

  /** Starts at the nearest stop before the position. Returns the distance. */
  #begin(packets: Packets, count: number): number {
    if (count < this.#at.taken)
      this.#at = copy(this.#stops.filter(({ taken }) => taken <= count).at(-1) ?? beginning());
    return Math.min(count, packets.length);
  }

  #take(packets: Packets): void {
    const packet = packets.packet(this.#at.taken);
    this.#at.taken += 1;
    if (packet) {
      this.#at.transcript.take(packet);
      const isFailure = packet.op === "ERROR" && packet.p.severity !== "WARNING";
      this.#at.failure = isFailure ? packet : packet.op === "CLOSE" ? this.#at.failure : undefined;
    }
    if (this.#at.taken >= (this.#stops.at(-1)?.taken ?? 0) + this.#apart) this.#stop();
  }

  #stop(): void {
    this.#stops.push(copy(this.#at));
    if (this.#stops.length <= MOST_STOPS) return;
    this.#stops = this.#stops.filter((_, n) => n % 2 === 1);
    this.#apart *= 2;
  }

  #state(): CapStreamState {
    const { transcript, failure } = this.#at;
    const { text, blocks, reason } = transcript;
    const answer = { text, blocks, streamId: undefined, conversationId: "" };
    const error = failure?.op === "ERROR" ? failure.p : undefined;
    if (error?.severity === "FATAL")
      return { status: "failed", error: new CAPRuntimeError({ error }), ...answer };
    if (reason !== undefined) return { status: "closed", reason, ...answer };
    if (error) return { status: "retrying", because: error.message, until: 0, ...answer };
    return { status: "streaming", ...answer };
  }
}

function beginning(): Stop {
  return { taken: 0, transcript: new Transcript(), failure: undefined };
}

function copy({ taken, transcript, failure }: Stop): Stop {
  return { taken, transcript: transcript.fork(), failure };
}

/** The question in a body of any face, if it can be found. */
export function questionOf(body: string): string {
  try {
    return questionIn(JSON.parse(body)) ?? "";
  } catch {
    return "";
  }
}

function questionIn(value: unknown, depth = 0): string | undefined {
  if (!isObject(value) || depth > 3) return undefined;
  if (isText(value["query"])) return value["query"];
  if (isText(value["input"])) return value["input"];
  for (const name of ["messages", "input"]) {
    const messages: unknown = value[name];
    const last = Array.isArray(messages)
      ? messages
          .filter(isObject)
          .filter(({ role }) => role === "user")
          .at(-1)
      : undefined;
    if (last) return textOf(last["content"] ?? last["parts"]);
  }
  if (isObject(value["message"]))
    return textOf(value["message"]["parts"] ?? value["message"]["content"]);
  return questionIn(value["payload"], depth + 1) ?? questionIn(value["params"], depth + 1);
}

/** The text of a message: its content, or the text of its parts. */
export function textOf(content: unknown): string {
  if (isText(content)) return content;
  return Array.isArray(content) ? content.map(textOfPart).join("") : "";
}

/**
 * Text parts of the gateway's own messages have `content`; those of other protocols have `text`.
 */
function textOfPart(part: unknown): string {
  if (!isObject(part)) return isText(part) ? part : "";
  const text = part["text"] ?? (part["type"] === "text" ? part["content"] : undefined);
  return isText(text) ? text : "";
}

/**
 * A state with at most `most` characters of text, and the number of characters left out at its
 * beginning.
 */
export function tailOf(
  state: CapStreamState,
  most: number,
): { state: CapStreamState; hidden: number } {
  if (state.status === "idle") return { state, hidden: 0 };
  let left = most;
  let hidden = 0;
  const blocks = [...state.blocks].reverse().map((block) => {
    if (block.type !== "text") return block;
    const shown =
      block.text.length <= left ? block.text : block.text.slice(block.text.length - left);
    left -= shown.length;
    hidden += block.text.length - shown.length;
    return shown === block.text ? block : { ...block, text: shown };
  });
  return { state: hidden === 0 ? state : { ...state, blocks: blocks.reverse() }, hidden };
}
