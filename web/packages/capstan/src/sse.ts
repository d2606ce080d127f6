// Decodes server-sent events by the WHATWG rules, however the bytes are split, at a linear cost. No
// I/O.

/** The largest frame: enough for an inline picture. */
const FRAME_LIMIT = 16 * 1024 * 1024;

/** One dispatched event. */
export interface Frame {
  /** The event's name; `message` if none was given. */
  event: string;
  /** The data lines, joined by LF. */
  data: string;
  /** The id in the frame itself. */
  id: string | undefined;
  /** The lines of the frame, unchanged, without the blank one. */
  lines: readonly string[];
}

/** A frame exceeded the limit. The stream cannot be decoded further. */
export class FrameTooLarge extends Error {
  override readonly name = "FrameTooLarge";

  constructor() {
    super(`a server-sent event is larger than ${FRAME_LIMIT} characters`);
  }
}

/**
 * An incremental decoder. Push bytes, take frames. A frame that the end cuts off is never returned.
 */
export class Decoder {
  /** The id of the last taken frame, also of one without data. It persists, as in browsers. */
  lastEventId: string | undefined;
  /** The last reconnection time that the server asked for, in milliseconds. */
  retry: number | undefined;

  // A byte order mark counts only as the first character. TextDecoder drops exactly that one.
  readonly #text = new TextDecoder();
  /**
   * Pieces of the incomplete line. They are joined once, so that a long line is not copied for each
   * chunk.
   */
  #partial: string[] = [];
  #afterCr = false;
  #lines: string[] = [];
  #size = 0;
  readonly #frames: Frame[] = [];
  #next = 0;

  push(bytes: Uint8Array): void {
    this.pushText(this.#text.decode(bytes, { stream: true }));
  }

  pushText(text: string): void {
    let from = 0;
    if (this.#afterCr && text !== "") {
      this.#afterCr = false;
      if (text.startsWith("\n")) from = 1;
    }
    const ends = /\r\n?|\n/g;
    ends.lastIndex = from;
    for (let end = ends.exec(text); end; end = ends.exec(text)) {
      this.#end(text.slice(from, end.index));
      from = end.index + end[0].length;
      this.#afterCr = end[0] === "\r" && from === text.length;
    }
    if (from < text.length) this.#keep(text.slice(from));
  }

  /** The next complete frame with data. Throws {@link FrameTooLarge}. */
  take(): Frame | undefined {
    for (;;) {
      const frame = this.takeAny();
      if (frame === undefined || hasData(frame)) return frame;
    }
  }

  /** The next complete frame, with data or without. */
  takeAny(): Frame | undefined {
    const frame = this.#frames[this.#next];
    if (frame === undefined) {
      if (this.#size > FRAME_LIMIT) throw new FrameTooLarge();
      return undefined;
    }
    this.#next += 1;
    if (this.#next === this.#frames.length) {
      this.#frames.length = 0;
      this.#next = 0;
    }
    if (frame.id !== undefined) this.lastEventId = frame.id;
    return frame;
  }

  #keep(piece: string): void {
    this.#size += piece.length;
    if (this.#size <= FRAME_LIMIT) this.#partial.push(piece);
  }

  #end(last: string): void {
    this.#keep(last);
    const line = this.#partial.join("");
    this.#partial = [];
    if (line === "") return this.#dispatch();
    if (this.#size > FRAME_LIMIT) return;
    this.#readRetry(line);
    // Comments between frames do not count, so that heartbeats never exceed the limit.
    if (line.startsWith(":") && this.#lines.length === 0) this.#size = 0;
    else this.#lines.push(line);
  }

  #readRetry(line: string): void {
    const value = valueOf("retry", line);
    if (value !== undefined && /^\d+$/.test(value)) this.retry = Number(value);
  }

  #dispatch(): void {
    if (this.#size > FRAME_LIMIT) return;
    if (this.#lines.length > 0) this.#frames.push(frameOf(this.#lines));
    this.#lines = [];
    this.#size = 0;
  }
}

/** Whether a frame is an event. One empty data line counts as data. */
export function hasData(frame: Frame): boolean {
  return frame.lines.some((line) => valueOf("data", line) !== undefined);
}

function frameOf(lines: readonly string[]): Frame {
  const data: string[] = [];
  let event = "";
  let id: string | undefined;
  for (const line of lines) {
    const text = valueOf("data", line);
    if (text !== undefined) data.push(text);
    event = valueOf("event", line) ?? event;
    const given = valueOf("id", line);
    // An id with a NUL is ignored.
    if (given !== undefined && !given.includes("\0")) id = given;
  }
  return { event: event || "message", data: data.join("\n"), id, lines };
}

/** The value, if the line is a field of this name. One space after the colon is removed. */
function valueOf(name: string, line: string): string | undefined {
  if (!line.startsWith(name)) return undefined;
  if (line.length === name.length) return "";
  if (line[name.length] !== ":") return undefined;
  const value = line.slice(name.length + 1);
  return value.startsWith(" ") ? value.slice(1) : value;
}
