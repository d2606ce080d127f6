// What a reload finds again: the conversation, and the run that is under way. In the tab's own storage, as the key is.
import { parseAGUIError } from "capstan";

import { type Face, isFace } from "./faces.js";
import { isObject, isText } from "./json.js";
import type { TurnData } from "./show/Turn.js";

const STORED = "capstan-conversation";
/** In characters. More is not kept: the oldest turns go first. */
const ROOM = 1_000_000;

export interface Kept {
  conversation: string;
  face: Face;
  agent: string;
  past: readonly TurnData[];
  /** The turn that ran last; its stream, once that was known. */
  current: { id: string; question: string; face: Face; streamId: string } | null;
}

/** What was kept; nothing if there is none, or if it is not ours. */
export function load(): Kept | undefined {
  try {
    const kept: unknown = JSON.parse(sessionStorage.getItem(STORED) ?? "null");
    return isObject(kept) && isText(kept["conversation"]) && isText(kept["agent"]) && isFace(kept["face"]) && Array.isArray(kept["past"]) ? (kept as unknown as Kept) : undefined;
  } catch {
    return undefined;
  }
}

export function save(kept: Kept): void {
  const past = kept.past.map(plain);
  for (let from = 0; from <= past.length; from += 1) {
    const text = JSON.stringify({ ...kept, past: past.slice(from) });
    if (text.length <= ROOM) return store(text);
  }
}

/** An error has members that are not written. */
function plain(turn: TurnData): TurnData {
  return turn.state.status === "failed" ? { ...turn, state: { ...turn.state, error: parseAGUIError(turn.state.error) } } : turn;
}

function store(text: string): void {
  try {
    sessionStorage.setItem(STORED, text);
  } catch {
    // A browser may have no room for it; then a reload begins anew.
  }
}
