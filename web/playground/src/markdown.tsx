// Markdown, the useful part of it, straight into React elements: there is no HTML in between that could run.
//
// Any text has a rendering, at a cost linear in its length and of bounded depth; what is not understood is text.
import { Fragment, memo, type ReactNode } from "react";

import { inline } from "./inline.js";

/** Quotes within quotes, at most. */
const DEEPEST = 6;

/** Renders markdown. */
export const Markdown = memo(function Markdown({ text }: { text: string }): ReactNode {
  return <div className="prose">{blocks(text.replaceAll("\r\n", "\n").split("\n"), DEEPEST)}</div>;
});

type Rule = (lines: string[], at: number, depth: number) => { node: ReactNode; next: number } | undefined;

const RULES: Rule[] = [fence, heading, ruler, quote, table, list, paragraph];

function blocks(lines: string[], depth: number): ReactNode[] {
  const nodes: ReactNode[] = [];
  for (let at = 0; at < lines.length; ) {
    if (lines[at]?.trim() === "") {
      at += 1;
      continue;
    }
    const found = firstOf(lines, at, depth);
    nodes.push(<Fragment key={at}>{found.node}</Fragment>);
    at = Math.max(found.next, at + 1);
  }
  return nodes;
}

function firstOf(lines: string[], at: number, depth: number): { node: ReactNode; next: number } {
  for (const rule of RULES) {
    const found = rule(lines, at, depth);
    if (found) return found;
  }
  return { node: lines[at], next: at + 1 };
}

/** The first line at or after `at` for which the test fails. */
function until(lines: string[], at: number, test: (line: string) => boolean): number {
  let end = at;
  while (end < lines.length && test(lines[end] ?? "")) end += 1;
  return end;
}

function fence(lines: string[], at: number) {
  const [, mark] = /^\s*(```+|~~~+)/.exec(lines[at] ?? "") ?? [];
  if (!mark) return undefined;
  const isEnd = (line: string) => line.trim().startsWith(mark) && withoutEnd(line.trim(), mark.charAt(0)) === "";
  const end = until(lines, at + 1, (line) => !isEnd(line));
  const code = lines.slice(at + 1, end).join("\n");
  return { node: <pre><code>{code}</code></pre>, next: end + 1 };
}

function heading(lines: string[], at: number) {
  const [, marks, text] = /^(#{1,6})\s+(.*)$/s.exec(lines[at] ?? "") ?? [];
  if (!marks) return undefined;
  // The page has headings of its own above these.
  const Tag = `h${Math.min(marks.length + 2, 6)}` as "h3";
  return { node: <Tag>{inline(withoutEnd(text ?? "", "#"))}</Tag>, next: at + 1 };
}

/** A heading may be closed by marks as well. By hand, since a pattern that looks for an end is quadratic. */
function withoutEnd(text: string, mark: string): string {
  let end = text.length;
  while (text[end - 1] === mark) end -= 1;
  return text.slice(0, end).trim();
}

function ruler(lines: string[], at: number) {
  return /^\s*([-*_])(\s*\1){2,}\s*$/.test(lines[at] ?? "") ? { node: <hr />, next: at + 1 } : undefined;
}

function quote(lines: string[], at: number, depth: number) {
  const end = depth === 0 ? at : until(lines, at, (line) => line.startsWith(">"));
  if (end === at) return undefined;
  const inner = lines.slice(at, end).map((line) => line.replace(/^>\s?/, ""));
  return { node: <blockquote>{blocks(inner, depth - 1)}</blockquote>, next: end };
}

const ROW = /^\s*\|.*\|\s*$/s;

function table(lines: string[], at: number) {
  const isTable = ROW.test(lines[at] ?? "") && /^\s*\|[\s:|-]+\|\s*$/.test(lines[at + 1] ?? "");
  if (!isTable) return undefined;
  const end = until(lines, at + 2, (line) => ROW.test(line));
  const head = cells(lines[at] ?? "");
  const rows = lines.slice(at + 2, end).map(cells);
  const node = (
    <div className="scroll">
      <table>
        <thead>
          <tr>{head.map((cell, n) => <th key={n}>{inline(cell)}</th>)}</tr>
        </thead>
        <tbody>{rows.map((row, n) => <tr key={n}>{row.map((cell, m) => <td key={m}>{inline(cell)}</td>)}</tr>)}</tbody>
      </table>
    </div>
  );
  return { node, next: end };
}

function cells(line: string): string[] {
  return line.trim().slice(1, -1).split("|").map((cell) => cell.trim());
}

const ITEM = /^\s*(?:[-*+]|(\d{1,9})[.)])\s+/;

function list(lines: string[], at: number) {
  const first = ITEM.exec(lines[at] ?? "");
  if (!first) return undefined;
  const end = until(lines, at, (line) => ITEM.test(line) || /^\s{2,}\S/.test(line));
  const items: string[] = [];
  for (const line of lines.slice(at, end)) {
    if (ITEM.test(line)) items.push(line.replace(ITEM, ""));
    else items[items.length - 1] += ` ${line.trim()}`;
  }
  const nodes = items.map((item, n) => <li key={n}>{inline(item)}</li>);
  return { node: first[1] ? <ol start={Number(first[1])}>{nodes}</ol> : <ul>{nodes}</ul>, next: end };
}

function paragraph(lines: string[], at: number) {
  const isMore = (line: string) => line.trim() !== "" && !/^(#{1,6}\s|>|\s*```)/.test(line) && !ITEM.test(line) && !ROW.test(line);
  const end = Math.max(until(lines, at + 1, isMore), at + 1);
  return { node: <p>{inline(lines.slice(at, end).join("\n"))}</p>, next: end };
}
