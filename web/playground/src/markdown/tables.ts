// Tables that keep all text: a pipe within code is no border, and cells beyond the last column
// stay.
import type { MarkdownIt } from "markdown-it";

/** Replaces a pipe within code until the borders of cells are found. It never occurs in text. */
const HIDDEN = "\ufdd0";
const BORDER = /(?<!\\)\|/;

type Rule = Parameters<MarkdownIt["block"]["ruler"]["push"]>[1];

export function withTables(markdown: MarkdownIt): MarkdownIt {
  const { core, block } = markdown;
  core.ruler.after("normalize", "hide_pipes", (state) => {
    if (state.src.includes("|") && state.src.includes("`")) {
      state.src = state.src.split("\n").map(hidePipes).join("\n");
    }
  });
  core.ruler.after("block", "show_pipes", ({ tokens }) => {
    for (const token of tokens) {
      token.content = token.content.replaceAll(HIDDEN, "|");
      token.info = token.info.replaceAll(HIDDEN, "|");
    }
  });
  // The rule for tables is the first one.
  const [table] = block.ruler.getRules("");
  if (table) block.ruler.at("table", keepingCells(table), { alt: ["paragraph", "reference"] });
  return markdown;
}

/** Hides the pipes between two equal runs of backticks. An open run stays text. */
function hidePipes(line: string): string {
  if (!line.includes("|")) return line;
  const runs = [...line.matchAll(/`+/g)];
  const last = new Map(runs.map(([run], at) => [run.length, at]));
  let hidden = "";
  let end = 0;
  for (let at = 0; at < runs.length; at += 1) {
    const [run = ""] = runs[at] ?? [];
    if ((last.get(run.length) ?? 0) <= at) continue;
    const begin = runs[at]?.index ?? 0;
    do at += 1;
    while (runs[at]?.[0].length !== run.length);
    const close = (runs[at]?.index ?? 0) + run.length;
    const code = line.slice(begin, close);
    // An escaped pipe is no border either, and loses its backslash like the others.
    hidden += line.slice(end, begin) + code.replace(/(?<!\\)\|/g, HIDDEN);
    end = close;
  }
  return hidden + line.slice(end);
}

/** Wraps the rule: cells beyond the last column are added to the last cell. */
function keepingCells(rule: Rule): Rule {
  return (state, first, end, silent) => {
    const begin = state.tokens.length;
    if (!rule(state, first, end, silent)) return false;
    const tokens = state.tokens.slice(begin);
    const columns = tokens.filter(({ type }) => type === "th_open").length;
    tokens.forEach(({ type, map }, at) => {
      if (type !== "tr_open" || !map || map[0] === first) return;
      const last = tokens[at + 3 * columns - 1];
      const cells = cellsOf(state.getLines(map[0], map[1], state.blkIndent, false));
      if (last && cells.length > columns) last.content = cells.slice(columns - 1).join(" | ");
    });
    return true;
  };
}

function cellsOf(line: string): string[] {
  const cells = line
    .trim()
    .split(BORDER)
    .map((cell) => cell.replaceAll("\\|", "|").trim());
  if (cells[0] === "") cells.shift();
  if (cells.at(-1) === "") cells.pop();
  return cells;
}
