// Which events came before, told by their ids alone. Of all ids only the first and the last are
// kept, whatever the length.
import { type Cursor, parseCursor } from "./cursor.js";

export class Repeats {
  #first: string | undefined;
  /** The next id is the first of a body. */
  #isOpening = false;
  /** A server that knows no cursors has started over: up to the last id everything is a repeat. */
  #isReplay = false;

  /** @param last the last id that was new. */
  constructor(public last?: string) {}

  /** A body begins. */
  open(): void {
    this.#isOpening = true;
    this.#isReplay = false;
  }

  /** Whether an event came before; if not, it is the last one from now on. */
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
    // Ids of a foreign server have no order that could be known.
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
