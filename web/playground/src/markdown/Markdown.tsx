// Renders markdown as elements. It renders any text, at a cost linear in its length and with
// bounded depth. Unknown syntax stays text.
import { memo, type ReactNode, useMemo, useState } from "react";

import { loaded } from "../loaded.js";
import type { Block } from "./parser.js";
import { render } from "./render.js";

/** Loaded separately. Until then the page shows plain text. */
const parser = loaded(() => import("./growing.js"));

export const loadMarkdown = parser.load;

interface Props {
  text: string;
  /** More text may follow. */
  isOpen?: boolean | undefined;
}

/** Renders markdown. */
export const Markdown = memo(function Markdown({ text, isOpen }: Props): ReactNode {
  const loaded = parser.use();
  if (!loaded)
    return (
      <div className="prose plain" dir="auto">
        {text}
      </div>
    );
  return <Parsed text={text} isOpen={isOpen ?? false} parser={loaded} />;
});

interface Loaded {
  text: string;
  isOpen: boolean;
  parser: typeof import("./growing.js");
}

function Parsed({ text, isOpen, parser: { Growing, parse } }: Loaded): ReactNode {
  const [growing] = useState(() => new Growing());
  // A complete text is parsed once more, because a definition may come after its use.
  const blocks = useMemo(
    () => (isOpen ? growing.blocks(text) : parse(text)),
    [growing, isOpen, parse, text],
  );
  return (
    <div className="prose">
      {blocks.map((block) => (
        <One key={block.key} block={block} />
      ))}
    </div>
  );
}

/** A finished block is the same object each time, so it is not rendered again. */
const One = memo(function One({ block }: { block: Block }): ReactNode {
  return render(block.tokens);
});
