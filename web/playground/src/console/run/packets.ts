// Frames of a run as they were sent, read once: for the raw list, and folded into what a user saw.
import { CAPRuntimeError, Decoder, decodePacket, hasData, parseCursor, type StreamPacket, Transcript } from "capstan";
import type { CapStreamState } from "capstan/react";

import { isObject, isText } from "../../json.js";
import type { Face } from "../api/api.js";

export interface SentFrame {
  seq: number;
  /** The op in CAP, the type of the event in AG-UI. */
  op: string;
  /** The type of an EVENT. */
  type: string | undefined;
  /** As it was sent, without the blank line. */
  text: string;
  data: string;
  /** In CAP v1 only. */
  packet: StreamPacket | undefined;
}

/** What a frame is called in lists. */
export function nameOf({ op, type }: SentFrame): string {
  return type ? `${op} ${type}` : op;
}

/** A packet, and when it was sent, in milliseconds. */
export interface Heard {
  packet: StreamPacket;
  time: number;
}

/** The packets of a stream that is read piece by piece: what is there stays, so that only what came costs anything. */
export class Tape {
  readonly #heard: Heard[] = [];
  #frames = 0;

  /** With those of `frames` that it does not have yet; they only ever grow. */
  grown(frames: readonly SentFrame[]): readonly Heard[] {
    for (; this.#frames < frames.length; this.#frames += 1) {
      const { packet } = frames[this.#frames]!;
      if (packet) this.#heard.push({ packet, time: Date.parse(packet.t) });
    }
    return this.#heard.slice();
  }
}

/** How many of them are at or before a packet. */
export function placeOf(heard: readonly Heard[], seq: number): number {
  return countUpTo(heard, seq, ({ packet }) => packet.seq);
}

/** How many of them, in their order, are at or before a number. */
export function countUpTo<T>(all: readonly T[], most: number, of: (one: T) => number): number {
  let [low, high] = [0, all.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of(all[middle]!) <= most) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The frames of a piece of a stream. What cannot be read is shown all the same. */
export function framesOf(text: string, face: Face): readonly SentFrame[] {
  const decoder = new Decoder();
  decoder.pushText(text);
  const frames: SentFrame[] = [];
  for (let frame = decoder.takeAny(); frame; frame = decoder.takeAny()) {
    if (!hasData(frame)) continue;
    const packet = face === "cap" ? packetOf(frame.data) : undefined;
    const seq = parseCursor(frame.id ?? "")?.seq ?? packet?.seq ?? frames.at(-1)?.seq ?? 0;
    frames.push({ seq, ...named(frame.data, packet), text: frame.lines.join("\n"), data: frame.data, packet });
  }
  return frames;
}

function packetOf(data: string): StreamPacket | undefined {
  try {
    return decodePacket(data);
  } catch {
    return undefined;
  }
}

function named(data: string, packet: StreamPacket | undefined): { op: string; type: string | undefined } {
  if (packet) return { op: packet.op, type: packet.op === "EVENT" ? textOr(packet.p["type"]) : undefined };
  try {
    const value: unknown = JSON.parse(data);
    if (!isObject(value)) return { op: "?", type: undefined };
    const { op, type, p } = value;
    return { op: textOr(op)?.toUpperCase() ?? textOr(type) ?? "?", type: isObject(p) && op === "event" ? textOr(p["type"]) : undefined };
  } catch {
    return { op: "?", type: undefined };
  }
}

function textOr(value: unknown): string | undefined {
  return isText(value) ? value : undefined;
}

/** Folds packets up to a place; going on is cheap, going back begins anew. */
export class Fold {
  #transcript = new Transcript();
  #taken = 0;
  #lastError: StreamPacket | undefined;

  /** What a viewer had after so many packets, of which there may be more than before but no others. */
  upTo(heard: readonly Pick<Heard, "packet">[], count: number): CapStreamState {
    if (count < this.#taken) this.#reset();
    for (; this.#taken < Math.min(count, heard.length); this.#taken += 1) this.#take(heard[this.#taken]!.packet);
    return this.#state();
  }

  #take(packet: StreamPacket): void {
    this.#transcript.take(packet);
    const isFailure = packet.op === "ERROR" && packet.p.severity !== "WARNING";
    this.#lastError = isFailure ? packet : packet.op === "CLOSE" ? this.#lastError : undefined;
  }

  #reset(): void {
    this.#transcript = new Transcript();
    this.#taken = 0;
    this.#lastError = undefined;
  }

  #state(): CapStreamState {
    const { text, blocks, reason } = this.#transcript;
    const answer = { text, blocks, streamId: undefined, conversationId: "" };
    const error = this.#lastError?.op === "ERROR" ? this.#lastError.p : undefined;
    if (error?.severity === "FATAL") return { status: "failed", error: new CAPRuntimeError({ error }), ...answer };
    if (reason !== undefined) return { status: "closed", reason, ...answer };
    if (error) return { status: "retrying", because: error.message, until: 0, ...answer };
    return { status: "streaming", ...answer };
  }
}

/** What was asked, as far as a body of any face says so. */
export function questionOf(body: string): string {
  try {
    return asked(JSON.parse(body)) ?? "";
  } catch {
    return "";
  }
}

function asked(value: unknown, depth = 0): string | undefined {
  if (!isObject(value) || depth > 3) return undefined;
  if (isText(value["query"])) return value["query"];
  if (isText(value["input"])) return value["input"];
  for (const name of ["messages", "input"]) {
    const messages: unknown = value[name];
    const last = Array.isArray(messages) ? messages.filter(isObject).filter(({ role }) => role === "user").at(-1) : undefined;
    if (last) return textOf(last["content"] ?? last["parts"]);
  }
  if (isObject(value["message"])) return textOf(value["message"]["parts"] ?? value["message"]["content"]);
  return asked(value["payload"], depth + 1) ?? asked(value["params"], depth + 1);
}

/** The words of a message: text, or the text among its parts. */
export function textOf(content: unknown): string {
  if (isText(content)) return content;
  if (!Array.isArray(content)) return "";
  return content.map((part) => (isObject(part) && isText(part["text"]) ? part["text"] : isText(part) ? part : "")).join("");
}

/** A state whose text is not longer than so many characters, and how many were left out: at its beginning, as one who reads along has it. */
export function tailOf(state: CapStreamState, most: number): { state: CapStreamState; hidden: number } {
  if (state.status === "idle") return { state, hidden: 0 };
  let left = most;
  let hidden = 0;
  const blocks = [...state.blocks].reverse().map((block) => {
    if (block.type !== "text") return block;
    const kept = block.text.length <= left ? block.text : block.text.slice(block.text.length - left);
    left -= kept.length;
    hidden += block.text.length - kept.length;
    return kept === block.text ? block : { ...block, text: kept };
  });
  return { state: hidden === 0 ? state : { ...state, blocks: blocks.reverse() }, hidden };
}
