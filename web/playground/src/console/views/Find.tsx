// Finds the run of any id, or explains why there is none.
import { faultOf } from "capstan";
import { type ReactNode, useEffect } from "react";

import { FAULT_HELP } from "../../../../packages/capstan/src/generated/fault-help.js";
import type { Findings, Hit, Refusal } from "../generated/answers.js";
import { useConsole } from "../context.js";
import { clock, span } from "../format.js";
import { Failure } from "../parts/Failure.js";
import { Link, navigate } from "../router.js";
import { to } from "../url.js";
import { useQuery } from "../use-query.js";

const KINDS: Readonly<Record<Hit["kind"], string>> = {
  stream: "a stream id",
  cursor: "a cursor",
  key: "the request id of a body",
  request_id: "an X-Request-ID",
  session: "a session",
  trace: "a trace id",
};

export function Find({ q }: { q: string }): ReactNode {
  const { api } = useConsole();
  const result = useQuery(q === "" ? null : `find ${q}`, (signal) => api.find(q, signal));
  const only =
    result.value?.hits.length === 1 && result.value.refusals.length === 0
      ? hrefOf(result.value.hits[0]!)
      : undefined;
  useEffect(() => {
    if (only) navigate(only, { replace: true });
  }, [only]);
  return (
    <div className="view">
      <h1>Find</h1>
      {q === "" && (
        <p className="card empty">
          Type any id into the box above: of a stream, a cursor, a request, a session or a trace.
        </p>
      )}
      {result.error !== undefined && <Failure error={result.error} onAgain={result.again} />}
      {result.value && !only && <Answer q={q} found={result.value} />}
    </div>
  );
}

function hrefOf({ stream_id, tenant, session, seq }: Hit): string | undefined {
  if (stream_id) return to.run(stream_id, undefined, seq ?? undefined);
  return tenant && session ? to.session(tenant, session) : undefined;
}

function Answer({
  q,
  found: { hits, refusals, looked },
}: {
  q: string;
  found: Findings;
}): ReactNode {
  const now = Date.now();
  return (
    <>
      {hits.length > 0 && (
        <ul className="plain">
          {hits.map((hit, n) => (
            <li key={n} className="card">
              <Link href={hrefOf(hit) ?? "#"}>
                <code>{hit.stream_id ?? hit.session}</code>
              </Link>{" "}
              by {KINDS[hit.kind] ?? hit.kind}
              {hit.tenant && <span className="muted"> · {hit.tenant}</span>}
            </li>
          ))}
        </ul>
      )}
      {refusals.map((refusal) => (
        <Refused key={`${refusal.at} ${refusal.request_id}`} refusal={refusal} now={now} />
      ))}
      {hits.length === 0 && refusals.length === 0 && (
        <p className="card empty">
          Nothing is known under <code>{q}</code>.
        </p>
      )}
      <section aria-labelledby="looked">
        <h2 id="looked">Where it looked</h2>
        <ul>
          {looked.map(({ where, back_to }) => (
            <li key={where}>
              {where}
              {back_to ? `, back to ${clock(back_to, now)}` : ""}
            </li>
          ))}
        </ul>
        <p className="muted">
          Ids are compared whole; of a stream id the first eight digits are enough.
        </p>
      </section>
    </>
  );
}

/** A refused request, which left no run. */
function Refused({ refusal, now }: { refusal: Refusal; now: number }): ReactNode {
  const help = Object.hasOwn(FAULT_HELP, refusal.code)
    ? FAULT_HELP[refusal.code as keyof typeof FAULT_HELP]
    : undefined;
  return (
    <section className="card notice tone-danger refusal" aria-label="A refused call">
      <div>
        <strong>
          Refused · {refusal.status} · {refusal.code}
        </strong>
        <p>{refusal.title}. There is no run: the call was refused before one began.</p>
        {refusal.why && (
          <p>
            <b>{refusal.why}</b>
          </p>
        )}
        {help && (
          <p>
            {help.meaning} <b>{help.remedy}</b>
          </p>
        )}
        {refusal.retry_after != null && (
          <p>
            Its answer has <b>retry after {refusal.retry_after} s</b>.
          </p>
        )}
        <p className="muted">
          {clock(refusal.at, now)} · {refusal.route} · after {span(refusal.ms)}
          {refusal.tenant ? ` · ${refusal.tenant}` : ""} ·{" "}
          <a href={`/errors/${faultOf(refusal.code)?.slug ?? ""}`}>catalogue</a>
        </p>
      </div>
    </section>
  );
}
