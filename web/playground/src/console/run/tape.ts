// The frames of a run: their text, and the position of each frame in it. A frame object is made
// when it is shown. Hundreds of thousands of objects would slow down garbage collection.
import { Decoder, decodePacket, hasData, parseCursor, type StreamPacket } from "capstan";

import { isObject, isText } from "../../json.js";
import type { Face } from "../api/api.js";
import { Pace } from "./pace.js";

export interface SentFrame {
  seq: number;
  /** The op in CAP, or the type of the event in AG-UI. For an EVENT, with its type. */
  name: string;
  /** The frame's text without the blank line. */
  text: string;
  data: string;
}

/** A part of a stream in complete frames. Every list has one entry per frame. */
export interface Piece {
  text: string;
  starts: number[];
  ends: number[];
  seqs: number[];
  /** The times of the packets in milliseconds; in CAP v1 only. */
  times: number[];
  names: string[];
}

/**
 * The loaded part of a stream. It is immutable: a longer tape is a new object, which shares the
 * pieces.
 */
export class Tape {
  static readonly EMPTY = new Tape([], []);

  private constructor(
    readonly pieces: readonly Piece[],
    /** The number of frames up to the end of each piece. */
    private readonly upTo: readonly number[],
  ) {}

  with(piece: Piece): Tape {
    return piece.seqs.length === 0
      ? this
      : new Tape([...this.pieces, piece], [...this.upTo, this.length + piece.seqs.length]);
  }

  get length(): number {
    return this.upTo.at(-1) ?? 0;
  }

  /** The last loaded packet. */
  get last(): number {
    return this.pieces.at(-1)?.seqs.at(-1) ?? 0;
  }

  /** The number of frames of packets up to this one. */
  placeOf(seq: number): number {
    const nth = countUpTo(this.pieces.length, seq, (n) => this.pieces[n]!.seqs.at(-1)!);
    const piece = this.pieces[nth];
    return (
      (this.upTo[nth - 1] ?? 0) +
      (piece ? countUpTo(piece.seqs.length, seq, (n) => piece.seqs[n]!) : 0)
    );
  }

  seq(n: number): number {
    const [piece, at] = this.#find(n);
    return piece.seqs[at]!;
  }

  frame(n: number): SentFrame {
    const [piece, at] = this.#find(n);
    const text = textOf(piece, at);
    return { seq: piece.seqs[at]!, name: piece.names[at]!, text, data: dataOf(text) };
  }

  /** The packet of a frame of CAP v1; undefined if it is invalid. */
  packet(n: number): StreamPacket | undefined {
    const [piece, at] = this.#find(n);
    return packetOf(dataOf(textOf(piece, at)));
  }

  times(): readonly number[] {
    return this.pieces.flatMap(({ times }) => times);
  }

  /** The indices of the frames with a name. */
  named(name: string): readonly number[] {
    const found: number[] = [];
    for (const [nth, { names }] of this.pieces.entries()) {
      const before = this.upTo[nth - 1] ?? 0;
      for (let at = 0; at < names.length; at += 1) if (names[at] === name) found.push(before + at);
    }
    return found;
  }

  #find(n: number): [Piece, number] {
    const nth = countUpTo(this.upTo.length, n, (nth) => this.upTo[nth]!);
    return [this.pieces[nth]!, n - (this.upTo[nth - 1] ?? 0)];
  }
}

/** The number of values at or below `most`, in a list that never decreases. */
export function countUpTo(length: number, most: number, of: (n: number) => number): number {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of(middle) <= most) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The head of a frame of the gateway, up to its data. */
const HEAD = /(?:event: [^\n]*\n)?id: [^\n:]*:(\d+)[^\n]*\ndata: /y;
/**
 * The beginning of a CAP v1 packet as the gateway writes it. The type of an EVENT is later in the
 * text.
 */
const PACKET = /\{"stream_id":"[0-9a-f-]{36}","seq":\d+,"op":"(DELTA|ERROR|CLOSE)","t":"([^"]+)"/y;

/** Finds the frames after a packet. Invalid frames are shown as well. */
export async function read(text: string, face: Face, after = 0, pace = new Pace()): Promise<Piece> {
  const piece: Piece = { text, starts: [], ends: [], seqs: [], times: [], names: [] };
  for (let start = 0, end; (end = text.indexOf("\n\n", start)) >= 0; start = end + 2) {
    if (pace.isOver) await pace.rest();
    const found = glance(text, start, end, face) ?? look(text.slice(start, end), face);
    if (!found) continue;
    const seq = found.seq ?? piece.seqs.at(-1) ?? after;
    if (found.seq !== undefined && seq <= after) continue;
    piece.starts.push(start);
    piece.ends.push(end);
    piece.seqs.push(seq);
    piece.names.push(found.name);
    piece.times.push(found.time ?? piece.times.at(-1) ?? 0);
  }
  return piece;
}

interface Found {
  seq: number | undefined;
  name: string;
  time: number | undefined;
}

/** Reads a frame of the gateway's own form without parsing its data. */
function glance(text: string, start: number, end: number, face: Face): Found | undefined {
  HEAD.lastIndex = start;
  const head = face === "cap" ? HEAD.exec(text) : null;
  if (!head) return undefined;
  PACKET.lastIndex = HEAD.lastIndex;
  const packet = PACKET.exec(text);
  if (!packet || text.indexOf("\n", PACKET.lastIndex) !== end) return undefined;
  return { seq: Number(head[1]), name: packet[1]!, time: Date.parse(packet[2]!) };
}

/** Reads any frame; undefined if it has no data. */
function look(text: string, face: Face): Found | undefined {
  const decoder = new Decoder();
  decoder.pushText(`${text}\n\n`);
  const frame = decoder.takeAny();
  if (!frame || !hasData(frame)) return undefined;
  const packet = face === "cap" ? packetOf(frame.data) : undefined;
  return {
    seq: parseCursor(frame.id ?? "")?.seq ?? packet?.seq,
    name: nameOf(frame.data),
    time: packet && Date.parse(packet.t),
  };
}

function textOf({ text, starts, ends }: Piece, at: number): string {
  return text.slice(starts[at], ends[at]);
}

function dataOf(text: string): string {
  HEAD.lastIndex = 0;
  const isPlain = HEAD.test(text) && !text.includes("\n", HEAD.lastIndex);
  if (isPlain) return text.slice(HEAD.lastIndex);
  const decoder = new Decoder();
  decoder.pushText(`${text}\n\n`);
  return decoder.takeAny()?.data ?? "";
}

function packetOf(data: string): StreamPacket | undefined {
  try {
    return decodePacket(data);
  } catch {
    return undefined;
  }
}

/** The name of a frame in lists. */
function nameOf(data: string): string {
  try {
    const value: unknown = JSON.parse(data);
    if (!isObject(value)) return "?";
    const { op, type, p } = value;
    const name = isText(op) ? op.toUpperCase() : isText(type) ? type : "?";
    return name === "EVENT" && isObject(p) && isText(p["type"]) ? `${name} ${p["type"]}` : name;
  } catch {
    return "?";
  }
}
