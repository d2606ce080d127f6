// Faults by code, agent and time. Every number links to its runs.
import { type ReactNode, useEffect, useState } from "react";

import { Select } from "../../ui/Select.js";
import type { FaultTable } from "../generated/answers.js";
import { useConsole, useNews } from "../context.js";
import { clock, count, plural } from "../format.js";
import { type Bar, Bars } from "../parts/Bars.js";
import { Failure } from "../parts/Failure.js";
import { Link, navigate, useAddress } from "../router.js";
import { to, withQuery } from "../url.js";
import { useQuery } from "../use-query.js";
import { barLength, barsOf, matrix } from "./matrix.js";

const SPANS = [
  ["1", "the last hour"],
  ["24", "the last day"],
  ["168", "the last week"],
  ["720", "the last 30 days"],
] as const;
const HOUR = 3_600_000;
/** The shortest interval of updates, so that the numbers stay readable. */
const EVERY = 5_000;

export function Faults(): ReactNode {
  const { api } = useConsole();
  const { path, search } = useAddress();
  const query = new URLSearchParams(search);
  const hours = query.get("hours") ?? "24";
  const chosen = query.get("since");
  const result = useQuery(`faults ${search}`, (signal) => {
    const since = chosen ?? new Date(Date.now() - Number(hours) * HOUR).toISOString();
    return api.faults({ since, until: query.get("until") ?? undefined }, signal);
  });
  useNews(result.again, EVERY);
  // The picture and the focus stay while another range is loaded.
  const [before, setBefore] = useState<FaultTable | undefined>(undefined);
  useEffect(() => {
    if (result.value) setBefore(result.value);
  }, [result.value]);
  const found = result.value ?? (result.error === undefined ? before : undefined);
  const put = (changed: Readonly<Record<string, string | undefined>>) =>
    navigate(withQuery(path, search, changed));
  return (
    <div className="view">
      <header className="run-title">
        <h1>Faults</h1>
        <Select
          label="How far back"
          isQuiet
          value={chosen ? "" : hours}
          onChange={(event) =>
            put({ hours: event.target.value, since: undefined, until: undefined })
          }
        >
          {chosen && <option value="">the chosen stretch</option>}
          {SPANS.map(([value, name]) => (
            <option key={value} value={value}>
              {name}
            </option>
          ))}
        </Select>
      </header>
      {result.error !== undefined && <Failure error={result.error} onAgain={result.again} />}
      {found && (
        <Charts
          found={found}
          onChoose={(since, until) => put({ since, until, hours: undefined })}
        />
      )}
    </div>
  );
}

function Charts({
  found,
  onChoose,
}: {
  found: FaultTable;
  onChoose: (since: string, until: string) => void;
}): ReactNode {
  const now = Date.now();
  const bars = barsOf(found);
  const all = found.cells.reduce((sum, cell) => sum + cell.fatal + cell.healed + cell.refused, 0);
  const end = (at: string) => new Date(Date.parse(at) + barLength(found)).toISOString();
  const describe = (from: Bar, last: Bar) => {
    const marked = bars.filter(({ at }) => at >= from.at && at <= last.at);
    const [fatal = 0, healed = 0, refused = 0] = [0, 1, 2].map((part) =>
      marked.reduce((sum, { parts }) => sum + parts[part]!, 0),
    );
    const time = `${clock(from.at, now)} to ${clock(end(last.at), now)}`;
    return `${time}: ${outcomesOf({ fatal, healed, refused })}`;
  };
  return (
    <>
      <p className="muted">
        {clock(found.from, now)} to{" "}
        {now - Date.parse(found.to) < 60_000 ? "now" : clock(found.to, now)} ·{" "}
        {plural(all, "fault")} · {plural(found.runs_total, "run")}
      </p>
      <figure className="card chart">
        <Bars
          bars={bars}
          tones={["danger", "warning", "neutral"]}
          label={`${plural(all, "fault")} over time`}
          describedBy="bars-how"
          describe={describe}
          onChoose={(from, last) => onChoose(from.at, end(last.at))}
        />
        <figcaption className="muted" id="bars-how">
          <i data-of="fatal" /> fatal <i data-of="again" /> tried again <i data-of="refused" />{" "}
          refused · drag to choose a stretch, or mark it with the arrow keys and Shift, then Enter
        </figcaption>
      </figure>
      {found.cells.length === 0 ? (
        <p className="card empty">No fault in this time.</p>
      ) : (
        <Matrix found={found} />
      )}
    </>
  );
}

function Matrix({ found }: { found: FaultTable }): ReactNode {
  const { rows, agents } = matrix(found.cells);
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Codes by agent">
      <table className="matrix">
        <thead>
          <tr>
            <th scope="col">Code</th>
            {agents.map((agent) => (
              <th key={agent} scope="col">
                {agent || "no agent"}
              </th>
            ))}
            <th scope="col">All</th>
            <th scope="col">Of all runs</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ code, title, cells, all, fatal }) => (
            <tr key={code}>
              <th scope="row">
                <code>{code}</code> <span className="muted">{title}</span>
              </th>
              {cells.map((cell, n) => (
                <td key={agents[n]}>
                  {cell && cell.fatal + cell.healed > 0 && (
                    <Link
                      href={to.runs({
                        fault: code,
                        agent: agents[n]!,
                        since: found.from,
                        until: found.to,
                      })}
                    >
                      <span className="sr-only">
                        {code}, {agents[n] || "no agent"}:{" "}
                      </span>
                      {cell.fatal > 0 && <b>{count(cell.fatal)} fatal</b>}
                      {cell.fatal > 0 && cell.healed > 0 && " · "}
                      {cell.healed > 0 && `${count(cell.healed)} tried again`}
                    </Link>
                  )}
                  {cell && cell.fatal + cell.healed > 0 && cell.refused > 0 && " · "}
                  {/* What was refused has left no run to be shown. */}
                  {cell && cell.refused > 0 && `${count(cell.refused)} refused`}
                </td>
              ))}
              <td>
                {cells.some((cell) => cell && cell.fatal + cell.healed > 0) ? (
                  <Link href={to.runs({ fault: code, since: found.from, until: found.to })}>
                    <span className="sr-only">{code}, all agents: </span>
                    {count(all)}
                  </Link>
                ) : (
                  count(all)
                )}
              </td>
              <td>
                {found.runs_total > 0 ? `${((fatal / found.runs_total) * 100).toFixed(1)} %` : "–"}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="muted">
        Tried again: an attempt failed, and its run went on. Numbers are counts of this time; runs
        that retention has taken are no longer in the list behind them. Refused calls left no run:
        the box above finds them by their id. Share: fatal ones of all runs.
      </p>
    </div>
  );
}

function outcomesOf({
  fatal,
  healed,
  refused,
}: {
  fatal: number;
  healed: number;
  refused: number;
}): string {
  return `${fatal} fatal, ${healed} tried again, ${refused} refused`;
}
