// The data of the axis as a table.
import { type ReactNode, useMemo } from "react";

import type { Mark, RunDetails } from "../generated/answers.js";
import { bytes, span } from "../format.js";
import { Rows } from "../parts/Rows.js";
import { type Happening, happenings } from "./happenings.js";

const ROW = 28;

interface Props {
  detail: RunDetails;
  marks: readonly Mark[];
  at: number | undefined;
  onAt: (seq: number) => void;
}

export function MarkTable({ detail, marks, at, onAt }: Props): ReactNode {
  const all = useMemo(() => happenings(detail, marks), [detail, marks]);
  return (
    <div
      className="marks"
      role="table"
      aria-label="What happened, in its order"
      aria-rowcount={all.length + 1}
    >
      <div role="rowgroup">
        <div className="mark-row mark-head" role="row">
          {["Time", "Packet", "What", "Size"].map((name) => (
            <span key={name} role="columnheader">
              {name}
            </span>
          ))}
        </div>
      </div>
      <Rows
        label="What happened"
        count={all.length}
        row={ROW}
        shown={
          at === undefined
            ? undefined
            : Math.max(
                0,
                all.findIndex(({ seq }) => seq === at),
              )
        }
        render={(n) => (
          <MarkRow
            key={n}
            n={n}
            of={all[n]!}
            isChosen={at !== undefined && all[n]!.seq === at}
            onAt={onAt}
          />
        )}
      />
    </div>
  );
}

function MarkRow({
  n,
  of: { t, seq, what, size },
  isChosen,
  onAt,
}: {
  n: number;
  of: Happening;
  isChosen: boolean;
  onAt: (seq: number) => void;
}): ReactNode {
  return (
    <div className="mark-row" role="row" aria-rowindex={n + 2} data-chosen={isChosen}>
      <span role="cell">{span(t)}</span>
      <span role="cell">
        {seq !== undefined && (
          <button type="button" className="link" onClick={() => onAt(seq)}>
            {seq}
          </button>
        )}
      </span>
      <span role="cell">{what}</span>
      <span role="cell">{size !== undefined && bytes(size)}</span>
    </div>
  );
}
