// All attempts: their start, end and usage.
import { type ReactNode, useEffect, useState } from "react";

import { Markdown } from "../../markdown/Markdown.js";
import { Badge } from "../../ui/Badge.js";
import type { AttemptDetails, ContinuedBy, RunDetails } from "../generated/answers.js";
import { bytes, clock, count, plural, span, tokens } from "../format.js";
import { CopyButton } from "../../ui/Copy.js";
import { Pace } from "./pace.js";
import type { Tape } from "./tape.js";

/** How an attempt continued an answer that had broken off. */
const CONTINUED_BY: Readonly<Record<ContinuedBy, string>> = {
  prefill: "prefill: the model continued the answer",
  comparison: "comparison: a new answer that begins like the first",
  reset: "reset: a new answer that differs from the first",
  upstream_resume: "upstream resume: the upstream sent the rest of its stream",
};

interface Props {
  detail: RunDetails;
  /** Empty while content is hidden. */
  tape: Tape;
  now: number;
  onAt: (seq: number) => void;
}

export function AttemptCards({ detail, tape, now, onAt }: Props): ReactNode {
  return (
    <ol className="plain attempts" aria-label="Attempts">
      {detail.attempts.map((attempt) => (
        <li key={attempt.n} className="card" data-attempt={attempt.n}>
          <AttemptCard attempt={attempt} now={now} onAt={onAt} />
          {isParted(detail.attempts, attempt) && <AttemptText attempt={attempt} tape={tape} />}
        </li>
      ))}
    </ol>
  );
}

/**
 * Whether a reset is before or after the attempt. Then its text differs and is shown side by side.
 */
function isParted(attempts: readonly AttemptDetails[], { n, reset_to }: AttemptDetails): boolean {
  return reset_to != null || attempts.some((other) => other.n === n + 1 && other.reset_to != null);
}

function AttemptCard({
  attempt,
  now,
  onAt,
}: {
  attempt: AttemptDetails;
  now: number;
  onAt: (seq: number) => void;
}): ReactNode {
  const {
    n,
    began_at,
    first_packet_at,
    ended_at,
    fault,
    fault_title,
    severity,
    fault_seq,
    retry_after,
    calls,
    members,
    continued_by,
    swallowed_bytes,
    reset_to,
  } = attempt;
  const began = began_at ? Date.parse(began_at) : NaN;
  const used = tokens(attempt.usage);
  return (
    <>
      <h3 className="card-title">
        Attempt {n}{" "}
        {fault ? (
          <Badge tone={severity?.toUpperCase() === "FATAL" ? "danger" : "warning"}>{fault}</Badge>
        ) : ended_at ? (
          <Badge tone="good">ended well</Badge>
        ) : (
          <Badge tone="info">under way</Badge>
        )}
      </h3>
      {fault_title && (
        <p>
          {fault_title}
          {fault_seq != null && (
            <>
              {" "}
              ·{" "}
              <button type="button" className="link" onClick={() => onAt(fault_seq)}>
                packet {fault_seq}
              </button>
            </>
          )}
        </p>
      )}
      <dl className="facts">
        <Fact name="began">{began_at ? clock(began_at, now) : "not noted"}</Fact>
        <Fact name="first packet">
          {first_packet_at ? since(began, Date.parse(first_packet_at), "after ") : "none"}
        </Fact>
        <Fact name="took">
          {ended_at ? since(began, Date.parse(ended_at)) : `${since(began, now)} so far`}
        </Fact>
        {attempt.from_seq != null && (
          <Fact name="packets">
            {attempt.from_seq}
            {attempt.to_seq != null && attempt.to_seq !== attempt.from_seq
              ? ` to ${attempt.to_seq}`
              : ""}
          </Fact>
        )}
        {calls != null && calls > 0 && <Fact name="upstream">{plural(calls, "call")}</Fact>}
        {members && members.length > 0 && (
          <Fact name="members">
            {members
              .map(
                ({ name, calls, fault }) =>
                  `${name}${calls ? ` ${plural(calls, "call")}` : ""}${fault ? ` ${fault}` : ""}`,
              )
              .join(", ")}
          </Fact>
        )}
        {continued_by && <Fact name="continued by">{CONTINUED_BY[continued_by]}</Fact>}
        {retry_after != null && <Fact name="asked to wait">{retry_after} s</Fact>}
        {reset_to != null && <Fact name="took back">what came after packet {reset_to}</Fact>}
        {swallowed_bytes != null && swallowed_bytes > 0 && (
          <Fact name="said again">{bytes(swallowed_bytes)}, swallowed</Fact>
        )}
        {used && <Fact name="tokens">{used}</Fact>}
        {attempt.request_id && (
          <Fact name="X-Request-ID">
            <code>{attempt.request_id}</code>
            <CopyButton text={attempt.request_id} label={`X-Request-ID of attempt ${n}`} />
          </Fact>
        )}
        {attempt.trace_id && (
          <Fact name="trace">
            <code>{attempt.trace_id}</code>
            <CopyButton text={attempt.trace_id} label={`trace of attempt ${n}`} />
          </Fact>
        )}
      </dl>
    </>
  );
}

function since(began: number, then: number, before = ""): string {
  return Number.isNaN(began) ? "–" : before + span(then - began);
}

function Fact({ name, children }: { name: string; children: ReactNode }): ReactNode {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{typeof children === "number" ? count(children) : children}</dd>
    </div>
  );
}

/** The text of this attempt only. */
function AttemptText({
  attempt: { from_seq, to_seq },
  tape,
}: {
  attempt: AttemptDetails;
  tape: Tape;
}): ReactNode {
  const [text, setText] = useState("");
  const [first, end] = [tape.placeOf((from_seq ?? 0) - 1), tape.placeOf(to_seq ?? Infinity)];
  useEffect(() => {
    const left = new AbortController();
    void saidBetween(tape, first, end, left.signal).then(
      (text) => text !== undefined && setText(text),
    );
    return () => left.abort();
    // Once it has all frames, a longer tape changes nothing.
  }, [first, end]);
  if (text === "") return null;
  return (
    <div className="said content">
      <Markdown text={text} />
    </div>
  );
}

async function saidBetween(
  tape: Tape,
  first: number,
  end: number,
  signal: AbortSignal,
): Promise<string | undefined> {
  const pace = new Pace();
  let text = "";
  for (let n = first; n < end; n += 1) {
    if (pace.isOver) await pace.rest();
    if (signal.aborted) return undefined;
    const packet = tape.packet(n);
    if (packet?.op === "DELTA") text += packet.p;
  }
  return text;
}
