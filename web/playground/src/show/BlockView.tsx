// One block of an answer: text, an event or a warning. If its rendering fails, it is shown raw, and
// other blocks stay.
import type { Block } from "capstan";
import { memo, type ReactNode } from "react";

import { Markdown } from "../markdown/Markdown.js";
import { Icon } from "../ui/Icon.js";
import { Boundary } from "./Boundary.js";
import { EventBlock } from "./EventBlock.js";
import { askedOf, Interrupt, type OnAnswer } from "./Interrupt.js";
import { Raw } from "./Raw.js";

interface Props {
  block: Block;
  /** More text may follow. */
  isOpen?: boolean | undefined;
  onRetry?: (() => void) | undefined;
  onAnswer?: OnAnswer | undefined;
}

export const BlockView = memo(function BlockView({
  block,
  isOpen,
  onRetry,
  onAnswer,
}: Props): ReactNode {
  return (
    <Boundary
      of={block}
      instead={<Raw title="This could not be shown" value={contentOf(block)} isOpen />}
    >
      <Shown block={block} isOpen={isOpen} onRetry={onRetry} onAnswer={onAnswer} />
    </Boundary>
  );
});

function Shown({ block, isOpen, onRetry, onAnswer }: Props): ReactNode {
  switch (block.type) {
    case "text":
      return <Markdown text={block.text} isOpen={isOpen} />;
    case "event": {
      const asked = askedOf(block.event);
      return asked ? (
        <Interrupt asked={asked} onAnswer={onAnswer} />
      ) : (
        <EventBlock view={block.view} onRetry={onRetry} />
      );
    }
    case "warning":
      return (
        <div className="card notice tone-warning" role="note">
          <Icon name="alert" />
          <p dir="auto">{block.error.message}</p>
        </div>
      );
  }
}

function contentOf(block: Block): unknown {
  switch (block.type) {
    case "text":
      return block.text;
    case "event":
      return block.event;
    case "warning":
      return block.error;
  }
}
