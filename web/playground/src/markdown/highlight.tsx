// Colours code: highlight.js makes a tree, and lowlight returns it without HTML.
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";
import type { ReactNode } from "react";

/** The names of languages in `highlight`, besides their aliases such as `ts`. */
export const LANGUAGES = {
  ...{ bash, c, cpp, css, diff, go, ini, java, javascript, json, markdown, python, rust, sql },
  ...{ typescript, xml, yaml },
};
/** The deepest nesting of colours. */
const DEEPEST = 6;

type Node = ReturnType<typeof lowlight.highlight>["children"][number];

const lowlight = createLowlight(LANGUAGES);
lowlight.registerAlias({ bash: ["console", "shell"] });

/** The coloured code; undefined for an unknown language. */
export function highlight(code: string, name: string): ReactNode {
  const language = name.toLowerCase();
  if (!lowlight.registered(language)) return undefined;
  return lowlight.highlight(language, code).children.map((node, at) => shown(node, at, DEEPEST));
}

function shown(node: Node, key: number, depth: number): ReactNode {
  if (node.type === "text") return node.value;
  if (node.type !== "element") return null;
  if (depth === 0) return textOf(node);
  const names = node.properties["className"];
  const className = Array.isArray(names) ? names.join(" ") : undefined;
  const inner = node.children.map((child, at) => shown(child, at, depth - 1));
  return (
    <span key={key} className={className}>
      {inner}
    </span>
  );
}

/** Without recursion, because code may be nested as deeply as it is long. */
function textOf(root: Node): string {
  const left = [root];
  let text = "";
  for (let node = left.pop(); node; node = left.pop()) {
    if (node.type === "text") text += node.value;
    else if (node.type === "element") left.push(...[...node.children].reverse());
  }
  return text;
}
