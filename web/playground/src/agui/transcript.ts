// Folds the events of an AG-UI run into the blocks of the CAP face. Text is stored by message,
// because a snapshot can remove a part of it.
import { Blocks } from "../blocks.js";
import { isObject, isText } from "../json.js";

export type AguiEvent = Record<string, unknown> & { type: string };

/** Events that only begin or end something, without content to show. */
const STRUCTURE =
  /^(RUN_(STARTED|FINISHED|ERROR)|STEP_(STARTED|FINISHED)|TEXT_MESSAGE_(START|END)|REASONING_(MESSAGE_)?(START|END)|REASONING_ENCRYPTED_VALUE)$/;
/** CAP's events, which come under these names in CUSTOM. */
const CARRIED = [
  "capstan.progress",
  "capstan.citations",
  "capstan.media",
  "capstan.user_error",
  "capstan.event",
];

export class AguiTranscript extends Blocks {
  take(event: AguiEvent): void {
    for (const data of interruptsOf(event)) this.show({ type: "INTERRUPT", data });
    if (!STRUCTURE.test(event.type) && !this.#fold(event)) this.raw(event);
  }

  /** Returns false for an unknown event, or if its members do not fit. */
  #fold(event: AguiEvent): boolean {
    switch (event.type) {
      case "TEXT_MESSAGE_CONTENT":
      case "TEXT_MESSAGE_CHUNK":
        return this.say(event["messageId"], event["delta"]);
      case "REASONING_MESSAGE_CONTENT":
        return (
          isText(event["delta"]) &&
          this.show({ type: "THOUGHT_TRACE", data: { thought: event["delta"] } })
        );
      case "MESSAGES_SNAPSHOT":
        return this.#snapshot(event["messages"]);
      case "CUSTOM":
        return this.#custom(event["name"], event["value"]);
      default:
        return false;
    }
  }

  #custom(name: unknown, value: unknown): boolean {
    if (name === "capstan.reset") return this.#reset(value);
    // Only the next attempt matters.
    if (name === "capstan.attempt_failed") return true;
    if (!isObject(value)) return false;
    if (name === "capstan.warning") return this.warn(value);
    return isText(name) && CARRIED.includes(name) && this.show(value);
  }

  /** Removes presentation events of the earlier attempt. */
  #reset(value: unknown): boolean {
    const dropped = isObject(value) ? value["dropped"] : undefined;
    if (!Array.isArray(dropped)) return false;
    this.drop((event) => dropped.includes(event["id"] ?? ""));
    return true;
  }

  #snapshot(messages: unknown): boolean {
    if (!Array.isArray(messages) || !messages.every(isObject)) return false;
    this.replaceTexts(new Map(messages.map((message) => [message["id"], message["content"]])));
    return true;
  }
}

/** The questions with which a run ended. */
function interruptsOf({ type, outcome }: AguiEvent): readonly unknown[] {
  if (type !== "RUN_FINISHED" || !isObject(outcome) || outcome["type"] !== "interrupt") return [];
  const interrupts = outcome["interrupts"];
  return Array.isArray(interrupts) ? interrupts : [];
}
