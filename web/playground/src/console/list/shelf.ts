// Lists by their filters, as they were left: going back is where one was, and `[` `]` walk the
// same list.
import type { List } from "./list.js";

export interface Kept {
  list: List;
  /** How far it was scrolled. */
  top: number;
}

/** More than anybody goes back through. */
const MOST = 12;

export class Shelf {
  readonly #kept = new Map<string, Kept>();

  get(search: string): Kept | undefined {
    return this.#kept.get(search);
  }

  put(search: string, kept: Kept): void {
    this.#kept.delete(search);
    this.#kept.set(search, kept);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MOST && oldest !== undefined) this.#kept.delete(oldest);
  }

  /** Changes every list that is kept. */
  change(by: (list: List) => List): void {
    for (const [search, kept] of this.#kept)
      this.#kept.set(search, { ...kept, list: by(kept.list) });
  }
}
