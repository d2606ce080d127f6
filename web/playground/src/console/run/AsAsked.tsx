// The agent's input: the complete turns before this one, and the question.
import type { ReactNode } from "react";

import { Markdown } from "../../markdown/Markdown.js";
import type { NumberedTurn, RunRow } from "../generated/answers.js";
import { useConsole } from "../context.js";
import { plural } from "../format.js";
import { Failure } from "../parts/Failure.js";
import { useQuery } from "../use-query.js";
import { textOf } from "./packets.js";

export function AsAsked({ row, question }: { row: RunRow; question: string }): ReactNode {
  const { api } = useConsole();
  const { session } = row;
  const result = useQuery(session ? `asked ${row.stream_id}` : null, (signal) =>
    api.session(row.tenant, session ?? "", {}, signal),
  );
  const { given, left } = historyOf(result.value?.turns ?? [], row.stream_id);
  if (result.error !== undefined) return <Failure error={result.error} onAgain={result.again} />;
  return (
    <div className="content as-asked">
      {left > 0 && (
        <p className="muted">
          It did not get {plural(left, "partial turn")} of the conversation.
        </p>
      )}
      {result.value?.next != null && (
        <p className="muted">The first hundred turns of a long conversation.</p>
      )}
      <ol className="plain">
        {given.flatMap(({ stream_id, messages }) =>
          messages.map(({ role, parts }, n) => (
            <Message key={`${stream_id} ${n}`} role={role} text={textOf(parts)} />
          )),
        )}
        <Message role="user" text={question} />
      </ol>
    </div>
  );
}

function Message({ role, text }: { role: string; text: string }): ReactNode {
  return (
    <li className="card">
      <span className="muted">{role}</span>
      <Markdown text={text} />
    </li>
  );
}

/**
 * The turns that a run got, and the number of earlier turns that it did not get. Stream ids sort by
 * time.
 */
export function historyOf(
  turns: readonly NumberedTurn[],
  id: string,
): { given: readonly NumberedTurn[]; left: number } {
  const before = turns.filter(({ stream_id }) => stream_id < id);
  const given = before.filter(({ partial }) => !partial);
  return { given, left: before.length - given.length };
}
