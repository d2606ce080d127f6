// The timeline of the connection: a mark per packet, and the cuts, resumes and repeats.
import type { ReactNode } from "react";

import type { LogView, Mark } from "../log.js";

/** The counters, in the order of the legend. */
const LEGEND: readonly [Mark["kind"], string, string][] = [
  ["delta", "text", "text"],
  ["event", "event", "events"],
  ["cut", "cut", "cuts"],
  ["resume", "resume", "resumes"],
  ["repeat", "repeat dropped", "repeats dropped"],
  ["error", "error", "errors"],
];
/** The most marks that are shown. The counts include older ones. */
const SHOWN = 400;
const LISTED: readonly Mark["kind"][] = ["connect", "cut", "retry", "resume", "error", "close"];

export function Timeline({ view }: { view: LogView }): ReactNode {
  const listed = view.marks.filter(({ kind }) => LISTED.includes(kind)).slice(-40);
  return (
    <section className="panel" aria-label="Timeline">
      <h2>Timeline</h2>
      <ul className="legend">
        {LEGEND.map(([kind, one, many]) => (
          <li key={kind} data-count={kind}>
            <span className={`mark mark-${kind}`} aria-hidden="true" />
            <strong>{view.counts[kind]}</strong> {view.counts[kind] === 1 ? one : many}
          </li>
        ))}
      </ul>
      <div className="strip" aria-hidden="true">
        {view.marks.slice(-SHOWN).map((mark, n) => (
          <span
            key={n}
            className={`mark mark-${mark.kind}`}
            title={`${seconds(mark)} ${mark.label}`}
          />
        ))}
      </div>
      <ol className="happenings" tabIndex={0} aria-label="What happened">
        {listed.map((mark, n) => (
          <li key={n}>
            <time>{seconds(mark)}</time>{" "}
            <span className={`mark mark-${mark.kind}`} aria-hidden="true" /> {mark.label}
          </li>
        ))}
      </ol>
      {view.servedBy !== "" && (
        <p className="muted served">
          Served by <strong>{view.servedBy}</strong>
        </p>
      )}
    </section>
  );
}

function seconds({ at }: Mark): string {
  return `${(at / 1000).toFixed(2)} s`;
}
