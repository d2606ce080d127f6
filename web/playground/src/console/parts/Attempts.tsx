// Attempts as dots, and as text for screen readers.
import type { ReactNode } from "react";

import type { RunRow } from "../generated/answers.js";
import { plural } from "../format.js";

/** The most dots. The number says the rest. */
const MOST = 5;

export function AttemptDots({ row }: { row: RunRow }): ReactNode {
  const isOpen = row.state === "running";
  const shown = row.attempts.slice(-MOST);
  const failed = row.attempts.filter(({ fault }) => fault).length;
  const text = `${plural(row.attempts.length, "attempt")}, ${failed} failed`;
  return (
    <span className="dots" title={text}>
      <span className="sr-only">{text}</span>
      {row.attempts.length > MOST && <span aria-hidden="true">{row.attempts.length}×</span>}
      {shown.map(({ n, fault }) => (
        <span
          key={n}
          className="dot"
          data-dot={fault ? "failed" : isOpen && n === row.attempts.length ? "open" : "well"}
          aria-hidden="true"
        />
      ))}
    </span>
  );
}
