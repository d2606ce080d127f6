// The events of an AG-UI run folded into the blocks that the CAP face gives. Total: what does not fit is a block of its own,
// as it came.
import { type Block, viewEvent } from "capstan";

import { isObject, isText } from "../json.js";

export type AguiEvent = Record<string, unknown> & { type: string };

/** Events that only say where something begins or ends: there is nothing in them to show. */
const STRUCTURE = /^(RUN_(STARTED|FINISHED|ERROR)|STEP_(STARTED|FINISHED)|TEXT_MESSAGE_(START|END)|REASONING_(MESSAGE_)?(START|END)|REASONING_ENCRYPTED_VALUE)$/;
/** Events of CAP's, under these names in CUSTOM. */
const CARRIED = ["capstan.progress", "capstan.citations", "capstan.media", "capstan.user_error", "capstan.event"];

/** The blocks of a run. Text is kept by message, so that a snapshot can take part of it back. */
export class AguiTranscript {
  #entries: { block: Block }[] = [];
  readonly #texts = new Map<string, { block: Block }>();
  #seq = 0;

  take(event: AguiEvent): void {
    this.#seq += 1;
    for (const data of interruptsOf(event)) {
      this.#show({ type: "INTERRUPT", data });
      // Each is a block of its own.
      this.#seq += 1;
    }
    if (!STRUCTURE.test(event.type) && !this.#fold(event)) this.#raw(event);
  }

  /** Frames that are no event. */
  takeUnreadable(text: string): void {
    this.#seq += 1;
    this.#raw(text);
  }

  /** False if it is not known here, or its members do not fit. */
  #fold(event: AguiEvent): boolean {
    switch (event.type) {
      case "TEXT_MESSAGE_CONTENT":
      case "TEXT_MESSAGE_CHUNK":
        return this.#say(event["messageId"], event["delta"]);
      case "REASONING_MESSAGE_CONTENT":
        return isText(event["delta"]) && this.#show({ type: "THOUGHT_TRACE", data: { thought: event["delta"] } });
      case "MESSAGES_SNAPSHOT":
        return this.#snapshot(event["messages"]);
      case "CUSTOM":
        return this.#custom(event["name"], event["value"]);
      default:
        return false;
    }
  }

  #say(id: unknown, delta: unknown): boolean {
    if (!isText(id) || !isText(delta)) return false;
    const entry = this.#texts.get(id);
    if (entry?.block.type === "text") entry.block = { ...entry.block, text: entry.block.text + delta };
    else this.#add({ type: "text", seq: this.#seq, text: delta }, id);
    return true;
  }

  #show(event: Record<string, unknown>): boolean {
    this.#add({ type: "event", seq: this.#seq, event, view: viewEvent(event) });
    return true;
  }

  #raw(data: unknown): void {
    this.#add({ type: "event", seq: this.#seq, event: isObject(data) ? data : { data }, view: { type: "other", data } });
  }

  #add(block: Block, id?: string): void {
    const entry = { block };
    this.#entries.push(entry);
    if (id !== undefined) this.#texts.set(id, entry);
  }

  #custom(name: unknown, value: unknown): boolean {
    if (name === "capstan.reset") return this.#drop(value);
    // The attempt that follows is what matters.
    if (name === "capstan.attempt_failed") return true;
    if (!isObject(value)) return false;
    if (name === "capstan.warning") return this.#warn(value);
    return isText(name) && CARRIED.includes(name) && this.#show(value);
  }

  #warn({ code, message }: Record<string, unknown>): boolean {
    if (!isText(code) || !isText(message)) return false;
    this.#add({ type: "warning", seq: this.#seq, error: { code, message, severity: "WARNING" } });
    return true;
  }

  /** An attempt says something else: presentation events of the one before no longer count. */
  #drop(value: unknown): boolean {
    const dropped = isObject(value) ? value["dropped"] : undefined;
    if (!Array.isArray(dropped)) return false;
    this.#entries = this.#entries.filter(({ block }) => block.type !== "event" || !dropped.includes(block.event["id"] ?? ""));
    return true;
  }

  #snapshot(messages: unknown): boolean {
    if (!Array.isArray(messages) || !messages.every(isObject)) return false;
    const texts = new Map(messages.map((message) => [message["id"], message["content"]]));
    for (const [id, entry] of this.#texts) {
      const text = texts.get(id);
      if (entry.block.type === "text") entry.block = { ...entry.block, text: isText(text) ? text : "" };
    }
    return true;
  }

  get blocks(): readonly Block[] {
    return this.#entries.map(({ block }) => block);
  }

  get text(): string {
    return this.#entries.map(({ block }) => (block.type === "text" ? block.text : "")).join("");
  }
}

/** What a run ended by asking. */
function interruptsOf({ type, outcome }: AguiEvent): readonly unknown[] {
  if (type !== "RUN_FINISHED" || !isObject(outcome) || outcome["type"] !== "interrupt") return [];
  const asked = outcome["interrupts"];
  return Array.isArray(asked) ? asked : [];
}
