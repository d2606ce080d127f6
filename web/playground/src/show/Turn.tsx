// One question and its answer.
import { type Block, faultOf, parseAGUIError } from "capstan";
import type { CapStreamState } from "capstan/react";
import { useSecondsLeft } from "capstan/react";
import { memo, type ReactNode } from "react";

import { Badge, type Tone } from "../ui/Badge.js";
import { Button } from "../ui/Button.js";
import { CopyButton } from "../ui/Copy.js";
import { Icon } from "../ui/Icon.js";
import { BlockView } from "./BlockView.js";
import type { OnAnswer } from "./Interrupt.js";
import { Question } from "./Question.js";

/** The longest code or reason that is shown, because an agent can send any text. */
const LONGEST = 80;

export interface TurnData {
  id: string;
  question: string;
  /** It answers a question of a run, so it cannot be sent again. */
  isAnswer?: boolean | undefined;
  state: CapStreamState;
}

interface Props {
  turn: TurnData;
  /** Without it there is no retry, because the turn is history. */
  onRetry?: (() => void) | undefined;
  onAnswer?: OnAnswer | undefined;
  /** Sends a question in place of this turn and all later ones. */
  onRewrite?: ((id: string, question: string) => void) | undefined;
  isLast?: boolean | undefined;
  /** A link to more details about the run. */
  more?: string | undefined;
}

export const Turn = memo(function Turn({
  turn,
  onRetry,
  onAnswer,
  onRewrite,
  isLast,
  more,
}: Props): ReactNode {
  const { id, question, state } = turn;
  const isOver = state.status === "closed" || state.status === "failed";
  const again = isLast && onRewrite && (() => onRewrite(id, question));
  return (
    <article className="turn" data-status={state.status}>
      {question !== "" && (
        <Question text={question} onEdit={onRewrite && ((text) => onRewrite(id, text))} />
      )}
      <div className="answer">
        {state.status !== "idle" &&
          latest(state.blocks).map((block) => (
            <BlockView
              key={`${block.type}-${block.seq}`}
              block={block}
              isOpen={!isOver && block === state.blocks.at(-1)}
              onRetry={onRetry}
              onAnswer={onAnswer}
            />
          ))}
        <div className="turn-foot">
          <Status state={state} more={more} />
          {isOver && state.text !== "" && <CopyButton text={state.text} label="answer" />}
          {isOver && again && (
            <Button
              size="icon"
              look="ghost"
              className="copy"
              aria-label="Regenerate"
              title="Regenerate"
              onClick={again}
            >
              <Icon name="again" />
            </Button>
          )}
        </div>
      </div>
    </article>
  );
});

/** Only the latest progress of each label is shown. */
function latest(blocks: readonly Block[]): readonly Block[] {
  const label = (block: Block) =>
    block.type === "event" && block.view.type === "progress" ? block.view.data.label : undefined;
  const last = new Map(blocks.map((block) => [label(block), block]));
  return blocks.filter((block) => label(block) === undefined || last.get(label(block)) === block);
}

function Status({ state, more }: { state: CapStreamState; more: string | undefined }): ReactNode {
  const [tone, text] = summaryOf(state);
  return (
    <div className="turn-status" role="status" data-testid="status">
      <Badge tone={tone}>
        {(state.status === "streaming" || state.status === "retrying") && (
          <span className="pulse" aria-hidden="true" />
        )}
        {text.slice(0, LONGEST)}
      </Badge>
      {state.status === "retrying" && <Retrying until={state.until} because={state.because} />}
      {state.status === "failed" && <span className="muted">{titleOf(state.error)}</span>}
      {more && (
        <a className="turn-more" href={more}>
          in the console
        </a>
      )}
    </div>
  );
}

function Retrying({ until, because }: { until: number; because: string }): ReactNode {
  const left = useSecondsLeft(until);
  return (
    <span className="muted">
      {because.slice(0, 200)}
      {left > 1 ? `; back in ${left} s` : ""}
    </span>
  );
}

/**
 * The toast has a general text and disappears. This text stays, and is the catalogue's for the
 * exact fault.
 */
function titleOf(error: unknown): string | undefined {
  const failure = parseAGUIError(error);
  return failure ? faultOf(failure.kind ?? failure.code)?.title : undefined;
}

function summaryOf(state: CapStreamState): [Tone, string] {
  switch (state.status) {
    case "idle":
      return ["neutral", "idle"];
    case "streaming":
      return ["info", state.text === "" ? "waiting" : "streaming"];
    case "retrying":
      return ["warning", "healing"];
    case "failed":
      return [
        "danger",
        parseAGUIError(state.error)?.kind ?? parseAGUIError(state.error)?.code ?? "failed",
      ];
    case "closed":
      return ["good", state.reason];
  }
}
