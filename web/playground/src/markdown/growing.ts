// Parses a growing text: finished blocks once, and only its open end again.
import type { Env } from "markdown-it";

import { type Block, parse } from "./parser.js";

const BREAK = /\r\n?|\n/g;

export { parse };

export class Growing {
  /** The text of the finished blocks. */
  #text = "";
  #lines = 0;
  #blocks: readonly Block[] = [];
  #env: Env = {};

  /** The blocks of a text. If it begins like the last one, finished blocks are the same objects. */
  blocks(text: string): readonly Block[] {
    if (!text.startsWith(this.#text)) this.#reset();
    const end = text.slice(this.#text.length);
    const open = parse(end, this.#lines, this.#scratch());
    const breaks = [...end.matchAll(BREAK)];
    // A block is certain only after two complete lines, because the second may make a table.
    const last = open.filter(({ key }) => key - this.#lines + 2 <= breaks.length).at(-1);
    const finished = last ? last.key - this.#lines : 0;
    if (!last || finished === 0) return [...this.#blocks, ...open];
    const cut = breaks[finished - 1];
    this.#finish(end.slice(0, (cut?.index ?? 0) + (cut?.[0].length ?? 0)), finished);
    return [...this.#blocks, ...open.slice(open.indexOf(last))];
  }

  /** Definitions in the open end are not final: they may be incomplete. */
  #scratch(): Env {
    return { references: Object.create(this.#env.references ?? null) as object } as Env;
  }

  #finish(text: string, lines: number): void {
    this.#blocks = [...this.#blocks, ...parse(text, this.#lines, this.#env)];
    this.#text += text;
    this.#lines += lines;
  }

  #reset(): void {
    this.#text = "";
    this.#lines = 0;
    this.#blocks = [];
    this.#env = {};
  }
}
