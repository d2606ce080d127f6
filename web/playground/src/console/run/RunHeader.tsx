// The head of a run: its state, a sentence, its ids, links and actions.
import type { ReactNode } from "react";

import { Icon } from "../../ui/Icon.js";
import type { RunDetails } from "../generated/answers.js";
import { useConsole } from "../context.js";
import { bytes, clock, count, durationOf, plural, span, tokens } from "../format.js";
import { Id } from "../parts/Id.js";
import { StateBadge } from "../parts/StateBadge.js";
import { Link } from "../router.js";
import { filled, to } from "../url.js";
import { Actions } from "./Actions.js";
import { sentenceOf } from "./sentence.js";

export function RunHeader({
  detail,
  now,
  onAgain,
}: {
  detail: RunDetails;
  now: number;
  onAgain: () => void;
}): ReactNode {
  const { me } = useConsole();
  const { row } = detail;
  const values = { trace_id: detail.trace_id, request_id: detail.request_id };
  const used = tokens(detail.usage);
  return (
    <header className="run-header">
      <div className="run-title">
        <h1>
          <StateBadge state={row.state} /> <Link href={to.agent(row.agent)}>{row.agent}</Link>
        </h1>
        <div className="row">
          {[
            ["trace", me.trace_url],
            ["logs", me.logs_url],
          ].map(([name, template]) => {
            const href = template ? filled(template, values) : undefined;
            return (
              href && (
                <a
                  key={name}
                  className="button button-outline button-small"
                  href={href}
                  target="_blank"
                  rel="noopener noreferrer"
                >
                  <Icon name="out" /> {name}
                </a>
              )
            );
          })}
          {detail.may.act && me.actions && <Actions row={row} onDone={onAgain} />}
        </div>
      </div>
      <p className="sentence" role="status">
        {sentenceOf(detail, now)}
      </p>
      <p className="muted">
        {clock(row.created_at, now)} · {span(durationOf(row, now))} ·{" "}
        {plural(row.packets, "packet")} · {bytes(row.bytes)}
        {row.first_packet_ms != null && ` · first packet after ${span(row.first_packet_ms)}`} ·
        attempt {row.attempts.length} of {detail.max_attempts} at most
        {used ? ` · ${used} tokens` : row.tokens > 0 ? ` · ${count(row.tokens)} tokens` : ""} ·{" "}
        {row.face}
        {row.model ? ` · ${row.model}` : ""}
        {row.owner ? ` · on ${row.owner}` : ""}
      </p>
      <dl className="ids">
        <Id label="stream" value={row.stream_id} />
        <Id label="key" value={row.key} />
        {row.session && (
          <Id label="session" value={row.session}>
            <Link href={to.session(row.tenant, row.session)}>
              <code>{row.session}</code>
            </Link>
          </Id>
        )}
        {detail.request_id && <Id label="X-Request-ID" value={detail.request_id} />}
        {detail.trace_id && <Id label="trace" value={detail.trace_id} />}
        <div className="id">
          <dt>tenant</dt>
          <dd>
            <code>{row.tenant}</code>
          </dd>
        </div>
      </dl>
    </header>
  );
}
