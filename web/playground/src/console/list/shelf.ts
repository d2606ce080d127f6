// Lists by their filters, with their scroll positions. Going back restores them, and `[` and `]`
// walk through the same list.
import type { List } from "./list.js";

export interface StoredList {
  list: List;
  /** The scroll position. */
  top: number;
}

/** The most lists; more than a user goes back through. */
const MOST = 12;

export class Shelf {
  readonly #stored = new Map<string, StoredList>();

  get(search: string): StoredList | undefined {
    return this.#stored.get(search);
  }

  put(search: string, stored: StoredList): void {
    this.#stored.delete(search);
    this.#stored.set(search, stored);
    const [oldest] = this.#stored.keys();
    if (this.#stored.size > MOST && oldest !== undefined) this.#stored.delete(oldest);
  }

  /** Changes every stored list. */
  change(by: (list: List) => List): void {
    for (const [search, stored] of this.#stored)
      this.#stored.set(search, { ...stored, list: by(stored.list) });
  }
}
