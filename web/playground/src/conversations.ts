// The conversations of this tab, newest first, in the tab's session storage. One of them is open.
// After a reload, it and its open run are found again.
import { newId, parseAGUIError } from "capstan";
import { useSyncExternalStore } from "react";

import { type Face, isFace } from "./faces.js";
import { isObject, isText } from "./json.js";
import type { TurnData } from "./show/Turn.js";

const STORED = "capstan-conversations";
/** The most conversations. The oldest are dropped. */
const MOST = 30;
/**
 * The most characters of all together. Beyond it, the oldest conversations are dropped, then turns.
 */
const ROOM = 1_000_000;
export const LONGEST_NAME = 60;

export interface Conversation {
  id: string;
  /** The user's name for it; by default its first question. */
  name?: string | undefined;
  /** The session id at the gateway. */
  session: string;
  /**
   * Turns were removed, so the gateway's session has other turns. Requests then contain the whole
   * conversation.
   */
  isRewritten: boolean;
  face: Face;
  agent: string;
  past: readonly TurnData[];
  /** The open turn, and its stream once that is known. */
  current: { id: string; question: string; face: Face; streamId: string } | null;
}

export interface Stored {
  open: Conversation;
  all: readonly Conversation[];
}

export class Conversations {
  #stored: Stored;
  readonly #listeners = new Set<() => void>();

  constructor() {
    const all = load();
    const open = all[0] ?? begun("cap", "");
    this.#stored = { open, all: [open, ...all.slice(1)] };
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  readonly view = (): Stored => this.#stored;

  /** Begins a conversation, with the agent and face of the open one. */
  begin(): void {
    const { open } = this.#stored;
    this.#show([begun(open.face, open.agent), ...this.#stored.all.filter((one) => !isEmpty(one))]);
  }

  open(id: string): void {
    const found = this.#stored.all.find((one) => one.id === id);
    if (!found) return;
    this.#show([found, ...this.#stored.all.filter((one) => one !== found && !isEmpty(one))]);
  }

  rename(id: string, name: string): void {
    const named = name.trim().slice(0, LONGEST_NAME);
    const rename = (one: Conversation) =>
      one.id === id ? { ...one, name: named || undefined } : one;
    this.#show(this.#stored.all.map(rename));
  }

  remove(id: string): void {
    const { open, all } = this.#stored;
    const left = all.filter((one) => one.id !== id);
    this.#show(left.length > 0 ? left : [begun(open.face, open.agent)]);
  }

  /** Stores changes of a conversation. */
  keep(id: string, changed: Omit<Conversation, "id" | "name">): void {
    const keep = (one: Conversation) => (one.id === id ? { ...one, ...changed } : one);
    this.#show(this.#stored.all.map(keep));
  }

  /** The first conversation is the open one. */
  #show(all: readonly Conversation[]): void {
    const stored = fitting(all);
    this.#stored = { open: stored[0] ?? begun("cap", ""), all: stored };
    store(stored);
    for (const listener of this.#listeners) listener();
  }
}

export function useConversations(conversations: Conversations): Stored {
  return useSyncExternalStore(conversations.subscribe, conversations.view);
}

export function nameOf({ name, past, current }: Conversation): string {
  const question = past[0]?.question ?? current?.question ?? "";
  return name ?? (question.slice(0, LONGEST_NAME) || "New conversation");
}

function begun(face: Face, agent: string): Conversation {
  const nothing = { past: [], current: null, isRewritten: false };
  return { id: newId(), session: newId(), face, agent, ...nothing };
}

function isEmpty({ past, current }: Conversation): boolean {
  return past.length === 0 && current === null;
}

function fitting(all: readonly Conversation[]): readonly Conversation[] {
  let room = ROOM;
  const fits = (one: Conversation) => {
    room -= JSON.stringify(one.past).length;
    return room >= 0;
  };
  const [open, ...others] = all.slice(0, MOST);
  if (!open) return [];
  let { past } = open;
  while (past.length > 0 && JSON.stringify(past).length > ROOM) past = past.slice(1);
  const trimmed = past === open.past ? open : { ...open, past };
  return [trimmed, ...others].filter((one) => fits(one) || one === trimmed);
}

function load(): readonly Conversation[] {
  try {
    const stored: unknown = JSON.parse(sessionStorage.getItem(STORED) ?? "null");
    return Array.isArray(stored) ? stored.filter(isConversation) : [];
  } catch {
    return [];
  }
}

function isConversation(one: unknown): one is Conversation {
  if (!isObject(one) || !isFace(one["face"]) || !Array.isArray(one["past"])) return false;
  return ["id", "session", "agent"].every((name) => isText(one[name]));
}

function store(all: readonly Conversation[]): void {
  try {
    const plain = all.map((one) => ({ ...one, past: one.past.map(withPlainError) }));
    sessionStorage.setItem(STORED, JSON.stringify(plain));
  } catch {
    // The storage may be full. Then a reload begins anew.
  }
}

/** Reduces an error object to its plain members. */
function withPlainError(turn: TurnData): TurnData {
  if (turn.state.status !== "failed") return turn;
  return { ...turn, state: { ...turn.state, error: parseAGUIError(turn.state.error) } };
}
