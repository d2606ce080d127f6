// The blocks of an answer, which the folds of all faces make. Content of an unknown form becomes a
// raw block.
import { type Block, viewEvent } from "capstan";

import { isObject, isText } from "./json.js";

export class Blocks {
  #entries: { block: Block }[] = [];
  readonly #texts = new Map<string, { block: Block }>();
  #seq = 0;

  /** Adds to a text. Returns false if the delta is no text. */
  say(id: unknown, delta: unknown): boolean {
    if (!isText(id) || !isText(delta)) return false;
    const entry = this.#texts.get(id);
    if (entry?.block.type === "text")
      entry.block = { ...entry.block, text: entry.block.text + delta };
    else this.#texts.set(id, this.#add({ type: "text", seq: this.#next(), text: delta }));
    return true;
  }

  /** Adds to the last text, or begins a new one. */
  sayOn(delta: unknown): boolean {
    const last = this.#entries.at(-1);
    if (!isText(delta)) return false;
    if (last?.block.type === "text") last.block = { ...last.block, text: last.block.text + delta };
    else this.#add({ type: "text", seq: this.#next(), text: delta });
    return true;
  }

  /** Adds a presentation event. */
  show(event: Record<string, unknown>): boolean {
    this.#add({ type: "event", seq: this.#next(), event, view: viewEvent(event) });
    return true;
  }

  warn(error: unknown): boolean {
    if (!isObject(error) || !isText(error["code"]) || !isText(error["message"])) return false;
    const { code, message } = error as { code: string; message: string };
    this.#add({
      type: "warning",
      seq: this.#next(),
      error: { code, message, severity: "WARNING" },
    });
    return true;
  }

  raw(data: unknown): void {
    this.#add({
      type: "event",
      seq: this.#next(),
      event: isObject(data) ? data : { data },
      view: { type: "other", data },
    });
  }

  /** Removes the events that match. */
  drop(isGone: (event: Record<string, unknown>) => boolean): void {
    this.#entries = this.#entries.filter(
      ({ block }) => block.type !== "event" || !isGone(block.event),
    );
  }

  /** Replaces all texts. Texts that are not in the map become empty. */
  replaceTexts(texts: ReadonlyMap<unknown, unknown>): void {
    for (const [id, entry] of this.#texts) {
      const text = texts.get(id);
      if (entry.block.type === "text")
        entry.block = { ...entry.block, text: isText(text) ? text : "" };
    }
  }

  get blocks(): readonly Block[] {
    return this.#entries.map(({ block }) => block);
  }

  get text(): string {
    return this.#entries.map(({ block }) => (block.type === "text" ? block.text : "")).join("");
  }

  #next(): number {
    this.#seq += 1;
    return this.#seq;
  }

  #add(block: Block): { block: Block } {
    const entry = { block };
    this.#entries.push(entry);
    return entry;
  }
}
