// markdown-it as this page uses it: text to top-level blocks of tokens, at a cost linear in the
// length, and with bounded depth. No token is HTML.
import Markdown, { type Env, type StateBlock, type Token } from "markdown-it";

import { withTables } from "./tables.js";

/** The deepest nesting of quotes and lists; a list counts twice. Deeper markup stays text. */
const DEEPEST = 10;
/**
 * The longest paragraph with markup, in characters. Longer ones stay text, so that they cost
 * little.
 */
export const LONGEST = 20_000;
/** A task of a list: `[ ] to do`, `[x] done`. */
const TASK = /^\[([ x])\]\s+/i;

/** A block of the top level. Its key stays the same while the text grows. */
export interface Block {
  key: number;
  tokens: readonly Token[];
}

const markdown = withTables(new Markdown({ html: false, linkify: true, maxNesting: 100 }));
// Addresses stay unchanged. The code that makes links decides which of them are allowed.
markdown.validateLink = () => true;
markdown.normalizeLink = (address) => address;
markdown.normalizeLinkText = (address) => address;
// `README.md` is no host, and an address without a scheme would be a path on this server.
markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false }).add("//", null).add("ftp:", null);
markdown.block.ruler.before("table", "too_deep", tooDeep);
markdown.core.ruler.after("block", "tasks", ({ tokens }) => markTasks(tokens));
markdown.core.ruler.before("inline", "too_long", ({ tokens }) => {
  for (const token of tokens)
    if (token.content.length > LONGEST && token.type === "inline") token.type = "text";
});

/** The blocks of a text that begins at a line. Uses the definitions of `env`, and adds to them. */
export function parse(text: string, firstLine = 0, env: Env = {}): Block[] {
  const blocks: Block[] = [];
  let begin = 0;
  const tokens = markdown.parse(text, env);
  tokens.forEach(({ level, nesting }, at) => {
    if (level !== 0 || nesting > 0) return;
    const own = tokens.slice(begin, at + 1);
    blocks.push({ key: firstLine + (own[0]?.map?.[0] ?? 0), tokens: own });
    begin = at + 1;
  });
  return blocks;
}

/** Beyond the limit markdown-it drops text. This keeps it as one paragraph. */
function tooDeep(state: StateBlock, first: number, end: number): boolean {
  if (state.level < DEEPEST) return false;
  const map: [number, number] = [first, end];
  state.push("paragraph_open", "p", 1).map = map;
  const inline = state.push("inline", "", 0);
  Object.assign(inline, { map, children: [] });
  inline.content = state.getLines(first, end, state.blkIndent, false).trim();
  state.push("paragraph_close", "p", -1);
  state.line = end;
  return true;
}

/** Marks the items that are tasks, and removes the box from their text. */
function markTasks(tokens: readonly Token[]): void {
  tokens.forEach((item, at) => {
    const [open, inline] = tokens.slice(at + 1, at + 3);
    if (item.type !== "list_item_open" || open?.type !== "paragraph_open" || !inline) return;
    const [box, mark] = TASK.exec(inline.content) ?? [];
    if (box === undefined || mark === undefined) return;
    item.meta = { isDone: mark !== " " };
    inline.content = inline.content.slice(box.length);
  });
}
