// A block of code: its language, a copy button, and colours if the language is known.
import type { ReactNode } from "react";

import { loaded } from "../loaded.js";
import { CopyButton } from "../ui/Copy.js";

/** The longest code with colours, in characters. Some code costs the square of its length. */
export const LONGEST_CODE = 5_000;
const LONGEST_NAME = 30;

const highlighter = loaded(() => import("./highlight.js").then(({ highlight }) => highlight));

export function CodeBlock({ code, info }: { code: string; info: string }): ReactNode {
  const [name = ""] = info.trim().split(/\s/, 1);
  return (
    <figure className="code" dir="ltr">
      <figcaption>
        <span>{name.slice(0, LONGEST_NAME)}</span>
        <CopyButton text={code} label="code" />
      </figcaption>
      <pre tabIndex={0}>
        <code>
          {name === "" || code.length > LONGEST_CODE ? code : <Coloured code={code} name={name} />}
        </code>
      </pre>
    </figure>
  );
}

function Coloured({ code, name }: { code: string; name: string }): ReactNode {
  const highlight = highlighter.use();
  return highlight?.(code, name) ?? code;
}
