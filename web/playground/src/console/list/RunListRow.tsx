// One run of the list, in two lines on a narrow screen.
import { memo, type ReactNode } from "react";

import type { RunRow } from "../generated/answers.js";
import { age, brief, clock, count, durationOf, span } from "../format.js";
import { AttemptDots } from "../parts/Attempts.js";
import { StateBadge } from "../parts/StateBadge.js";
import { Link } from "../router.js";
import { to } from "../url.js";

const COLUMNS = [
  "State",
  "Age",
  "Agent",
  "Fault",
  "Attempts",
  "First",
  "Duration",
  "Packets",
  "Tokens",
  "Session",
  "Key",
] as const;

export function RunHead({ withTenant }: { withTenant: boolean }): ReactNode {
  return (
    <div role="rowgroup">
      <div className="run-row run-head" role="row">
        {COLUMNS.map((name) => (
          <span key={name} role="columnheader" data-cell={cellOf(name)}>
            {name}
          </span>
        ))}
        {withTenant && (
          <span role="columnheader" data-cell="tenant">
            Tenant
          </span>
        )}
      </div>
    </div>
  );
}

function cellOf(name: string): string {
  return name.toLowerCase();
}

interface Props {
  row: RunRow;
  n: number;
  now: number;
  /** The query of its list, through which `[` and `]` walk. */
  search: string;
  withTenant: boolean;
}

export const RunListRow = memo(function RunListRow({
  row,
  n,
  now,
  search,
  withTenant,
}: Props): ReactNode {
  return (
    <div
      className="run-row"
      role="row"
      aria-rowindex={n + 2}
      data-row={n}
      data-run={row.stream_id}
      data-state={row.state}
    >
      <span role="cell" data-cell="state">
        <Link className="run-link" href={to.run(row.stream_id)} state={{ list: search }}>
          <StateBadge state={row.state} />
          <span className="sr-only"> run {brief(row.stream_id)}</span>
        </Link>
      </span>
      <span role="cell" data-cell="age" title={clock(row.created_at, now)}>
        {age(row.created_at, now)}
      </span>
      <span role="cell" data-cell="agent">
        {row.agent}
      </span>
      <span role="cell" data-cell="fault">
        {row.fault && (
          <>
            <code>{row.fault}</code> <span className="muted">{row.fault_title}</span>
          </>
        )}
      </span>
      <span role="cell" data-cell="attempts">
        <AttemptDots row={row} />
      </span>
      <span role="cell" data-cell="first">
        {row.first_packet_ms == null ? "–" : span(row.first_packet_ms)}
      </span>
      <span role="cell" data-cell="duration">
        {span(durationOf(row, now))}
      </span>
      <span role="cell" data-cell="packets">
        {count(row.packets)}
      </span>
      <span role="cell" data-cell="tokens">
        {row.tokens > 0 ? count(row.tokens) : "–"}
      </span>
      <span role="cell" data-cell="session">
        {row.session ? (
          <Link href={to.session(row.tenant, row.session)} title={row.session}>
            {brief(row.session)}
          </Link>
        ) : (
          "–"
        )}
      </span>
      <span role="cell" data-cell="key" title={row.key}>
        {brief(row.key)}
      </span>
      {withTenant && (
        <span role="cell" data-cell="tenant">
          {row.tenant}
        </span>
      )}
    </div>
  );
}, isSameRow);

/** A row of a finished run changes only with its age, which has steps. */
function isSameRow(before: Props, next: Props): boolean {
  if (
    before.row !== next.row ||
    before.n !== next.n ||
    before.search !== next.search ||
    before.withTenant !== next.withTenant
  )
    return false;
  if (before.row.state === "running" || before.row.state === "waiting")
    return before.now === next.now;
  return age(before.row.created_at, before.now) === age(next.row.created_at, next.now);
}
