// Marks within a line of markdown: code, strong, emphasis, links, bare addresses.
//
// Whatever the text, the cost is linear in its length and the depth is bounded: where marks close is found once, in lists that
// are only read forwards, and marks within marks beyond a few levels are text.
import { Fragment, type ReactNode } from "react";

import { safeLink } from "./safe-url.js";

/** Marks within marks, at most. */
const DEEPEST = 6;
/** Where a mark may begin. */
const SPECIAL = /[`*_[]|!\[|https?:\/\//g;
const RUN = /`+|\*+|_+/g;
/** An address in brackets; it may hold pairs of brackets itself. */
const ADDRESS = /\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)/y;
const BARE = /https?:\/\/[^\s<>")\]]+/y;
const WORD = /[\p{L}\p{N}_]/u;

interface Span {
  node: ReactNode;
  /** Where the text goes on. */
  end: number;
}

/** Renders the marks of a text. */
export function inline(text: string, depth = DEEPEST): ReactNode[] {
  if (depth === 0) return [text];
  const nodes: ReactNode[] = [];
  const closings = new Closings(text);
  let plain = 0;
  for (let at = search(SPECIAL, text, 0); at >= 0; ) {
    const found = span(text, at, closings, depth);
    if (found) {
      nodes.push(text.slice(plain, at), <Fragment key={at}>{found.node}</Fragment>);
      plain = found.end;
    }
    at = search(SPECIAL, text, found?.end ?? endOfRun(text, at));
  }
  nodes.push(text.slice(plain));
  return nodes;
}

function span(text: string, at: number, closings: Closings, depth: number): Span | undefined {
  switch (text[at]) {
    case "`":
      return code(text, at, closings);
    case "*":
    case "_":
      return emphasis(text, at, closings, depth);
    case "[":
      return link(text, at + 1, closings);
    case "!":
      return link(text, at + 2, closings);
    default:
      return bare(text, at);
  }
}

function code(text: string, at: number, closings: Closings): Span | undefined {
  const begin = endOfRun(text, at);
  const close = closings.next(`code ${begin - at}`, begin);
  return close && { node: <code>{text.slice(begin, close.at).trim()}</code>, end: close.end };
}

/** `*` and `_` once, or twice for strong. A mark opens before a word and closes behind one; `_` does neither inside of one. */
function emphasis(text: string, at: number, closings: Closings, depth: number): Span | undefined {
  const mark = text[at] ?? "";
  const begin = endOfRun(text, at);
  if (isBlank(text[begin]) || (mark === "_" && WORD.test(text[at - 1] ?? ""))) return undefined;
  const isStrong = begin - at > 1;
  const close = closings.next(isStrong ? mark + mark : mark, begin);
  if (!close) return undefined;
  // Of longer runs the rest belongs to what is inside: `**a *b***`.
  const size = isStrong ? 2 : 1;
  const inner = inline(text.slice(at + size, close.end - size), depth - 1);
  return { node: isStrong ? <strong>{inner}</strong> : <em>{inner}</em>, end: close.end };
}

/** `[label](address)`. A picture from elsewhere is a link to it, too: showing it would tell its server who reads. */
function link(text: string, begin: number, closings: Closings): Span | undefined {
  const close = closings.next("]", begin);
  const [whole, address] = (close && closings.addressAt(close.end)) ?? [];
  if (!close || whole === undefined) return undefined;
  const label = text.slice(begin, close.at) || address || "[]()";
  return { node: <Link address={address ?? ""}>{label}</Link>, end: close.end + whole.length };
}

function bare(text: string, at: number): Span | undefined {
  const [address] = match(BARE, text, at) ?? [];
  return address === undefined ? undefined : { node: <Link address={address}>{address}</Link>, end: at + address.length };
}

/** A link that leaves nothing behind; what may not be followed stays text. */
export function Link({ address, children }: { address: string; children: ReactNode }): ReactNode {
  const href = safeLink(address);
  if (href === undefined) return <span title="This address is not followed.">{children}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

interface Run {
  at: number;
  end: number;
}

/** What can close a mark, by mark and in its order. */
class Closings {
  readonly #runs = new Map<string, { list: Run[]; next: number }>();
  /** The address that was looked for last. */
  #address: { at: number; found: RegExpExecArray | null } | undefined;

  constructor(readonly text: string) {
    for (const { 0: run, index: at } of text.matchAll(RUN)) {
      const end = at + run.length;
      if (run[0] === "`") this.#add(`code ${run.length}`, at, end);
      else if (!isBlank(text[at - 1]) && !(run[0] === "_" && WORD.test(text[end] ?? ""))) this.#addEmphasis(run, at, end);
    }
    for (let at = text.indexOf("]"); at >= 0; at = text.indexOf("]", at + 1)) this.#add("]", at, at + 1);
  }

  #addEmphasis(run: string, at: number, end: number): void {
    const [mark = ""] = run;
    if (run.length > 1) this.#add(mark + mark, at, end);
    if (run.length !== 2) this.#add(mark, at, end);
  }

  #add(name: string, at: number, end: number): void {
    const known = this.#runs.get(name);
    if (known) known.list.push({ at, end });
    else this.#runs.set(name, { list: [{ at, end }], next: 0 });
  }

  /** The first of this name at or after `from`. Asked with growing places only, so that no list is read twice. */
  next(name: string, from: number): Run | undefined {
    const runs = this.#runs.get(name);
    if (!runs) return undefined;
    while ((runs.list[runs.next]?.at ?? from) < from) runs.next += 1;
    return runs.list[runs.next];
  }

  /** The address behind a bracket. Any number of brackets may open before the one that closes; it is read for the first of them. */
  addressAt(at: number): RegExpExecArray | null {
    if (this.#address?.at !== at) this.#address = { at, found: match(ADDRESS, this.text, at) };
    return this.#address.found;
  }
}

function isBlank(character: string | undefined): boolean {
  return character === undefined || character.trim() === "";
}

/** The end of the run of one character that begins at `at`. */
function endOfRun(text: string, at: number): number {
  let end = at + 1;
  while (end < text.length && text[end] === text[at]) end += 1;
  return end;
}

function search(pattern: RegExp, text: string, from: number): number {
  return match(pattern, text, from)?.index ?? -1;
}

function match(pattern: RegExp, text: string, from: number): RegExpExecArray | null {
  pattern.lastIndex = from;
  return pattern.exec(text);
}
