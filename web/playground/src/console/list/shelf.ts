// Lists by their filters, with their scroll positions. Going back restores them, and `[` and `]`
// walk through the same list.
import type { List } from "./list.js";

export interface Kept {
  list: List;
  /** The scroll position. */
  top: number;
}

/** The most lists; more than a user goes back through. */
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

  /** Changes every stored list. */
  change(by: (list: List) => List): void {
    for (const [search, kept] of this.#kept)
      this.#kept.set(search, { ...kept, list: by(kept.list) });
  }
}
