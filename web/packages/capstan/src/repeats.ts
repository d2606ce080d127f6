// Recognises repeated events by their ids. It stores only the first and the last id, whatever the
// length of the stream.
import { type Cursor, parseCursor } from "./cursor.js";

export class Repeats {
  #first: string | undefined;
  /** The next id is the first of a body. */
  #isOpening = false;
  /** A server without cursors has started over: everything up to the last id is a repeat. */
  #isReplay = false;

  /** @param last the last new id. */
  constructor(public last?: string) {}

  /** Begins a body. */
  open(): void {
    this.#isOpening = true;
    this.#isReplay = false;
  }

  /** Whether an event is a repeat. If not, it becomes the last event. */
  has(id: string | undefined): boolean {
    if (id === undefined) return this.#isReplay;
    const isRepeat = this.#isRepeat(id);
    this.#isOpening = false;
    if (!isRepeat) {
      this.#first ??= id;
      this.last = id;
    }
    return isRepeat;
  }

  #isRepeat(id: string): boolean {
    if (this.last === undefined) return false;
    const order = compare(parseCursor(id), parseCursor(this.last));
    if (order !== undefined) return order <= 0;
    // The ids of a foreign server have no known order.
    if (this.#isOpening && id === this.#first) this.#isReplay = true;
    const isRepeat = this.#isReplay || id === this.last;
    if (id === this.last) this.#isReplay = false;
    return isRepeat;
  }
}

/** The order of two cursors of one stream. */
function compare(a: Cursor | undefined, b: Cursor | undefined): number | undefined {
  if (a?.seq === undefined || b?.seq === undefined || a.stream_id !== b.stream_id) return undefined;
  return a.seq - b.seq || (a.part ?? 0) - (b.part ?? 0);
}
