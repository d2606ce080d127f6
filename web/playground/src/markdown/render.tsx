// Renders tokens as elements, without HTML in between that could run.
import type { Token } from "markdown-it";
import { createElement, type ReactNode } from "react";

import { Link } from "../show/Link.js";
import { CodeBlock } from "./CodeBlock.js";

/** The deepest nesting of elements. Deeper content is shown without its markup. */
const DEEPEST = 18;

interface Open {
  token: Token;
  children: ReactNode[];
}

/** The elements of balanced tokens. */
export function render(tokens: readonly Token[], depth = 0, isLinked = false): ReactNode[] {
  const nodes: ReactNode[] = [];
  const open: Open[] = [];
  let tooDeep = 0;
  tokens.forEach((token, at) => {
    const isFull = depth + open.length >= DEEPEST;
    if (token.nesting > 0) {
      if (isFull) tooDeep += 1;
      else open.push({ token, children: [] });
      return;
    }
    if (token.nesting < 0 && tooDeep > 0) {
      tooDeep -= 1;
      return;
    }
    const closed = token.nesting < 0 ? open.pop() : undefined;
    const place = open.at(-1)?.children ?? nodes;
    const isIn = isLinked || open.some((one) => one.token.tag === "a");
    const isTop = depth + open.length === 0;
    place.push(closed ? element(closed, at, isTop) : leaf(token, at, depth + open.length, isIn));
  });
  return nodes;
}

/** The first word of a block decides its text direction. */
function element({ token, children }: Open, key: number, isTop: boolean): ReactNode {
  if (token.hidden) return children;
  const dir = isTop ? "auto" : undefined;
  switch (token.tag) {
    case "a":
      return link(token, key, children);
    case "h1":
    case "h2":
    case "h3":
    case "h4":
      // The page's own headings are above these.
      return createElement(`h${Number(token.tag[1]) + 2}`, { key, dir }, ...children);
    case "h5":
    case "h6":
      return (
        <h6 key={key} dir={dir}>
          {children}
        </h6>
      );
    case "ol":
      return (
        <ol key={key} dir={dir} start={Number(token.attrGet("start") ?? 1)}>
          {children}
        </ol>
      );
    case "li":
      return item(token, key, children);
    case "table":
      return (
        <div key={key} className="scroll" tabIndex={0}>
          <table dir={dir}>{children}</table>
        </div>
      );
    case "th":
    case "td":
      return createElement(token.tag, { key, className: alignmentOf(token) }, ...children);
    default:
      return createElement(token.tag, { key, dir }, ...children);
  }
}

function leaf(token: Token, key: number, depth: number, isLinked: boolean): ReactNode {
  switch (token.type) {
    case "inline":
      return render(token.children ?? [], depth, isLinked);
    case "softbreak":
      return "\n";
    case "hardbreak":
      return <br key={key} />;
    case "hr":
      return <hr key={key} />;
    case "code_inline":
      return (
        <code key={key} dir="ltr">
          {token.content}
        </code>
      );
    case "fence":
    case "code_block":
      return <CodeBlock key={key} code={token.content.replace(/\n$/, "")} info={token.info} />;
    case "image":
      // An image becomes a link: loading it would tell its server who reads. A link cannot contain
      // another one.
      return isLinked ? token.content : link(token, key, token.content);
    default:
      return token.content;
  }
}

function link(token: Token, key: number, children: ReactNode): ReactNode {
  const address = String(token.attrGet("href") ?? token.attrGet("src") ?? "");
  const isEmpty = children === "" || (Array.isArray(children) && children.length === 0);
  const title = token.attrGet("title")?.toString();
  return (
    <Link key={key} address={address} title={title}>
      {isEmpty ? address || "[]()" : children}
    </Link>
  );
}

/** An item of a list, with its box if it is a task. */
function item(token: Token, key: number, children: ReactNode[]): ReactNode {
  const isDone = token.meta?.isDone as boolean | undefined;
  if (isDone === undefined) return createElement("li", { key }, ...children);
  const box = (
    <input type="checkbox" disabled checked={isDone} aria-label={isDone ? "done" : "to do"} />
  );
  return createElement("li", { key, className: "task" }, box, ...children);
}

function alignmentOf(token: Token): string | undefined {
  const style = String(token.attrGet("style") ?? "");
  return style === "" ? undefined : style.replace("text-align:", "align-");
}
