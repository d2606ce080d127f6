// The frames of a run, in CAP or AG-UI. Only those on the screen are elements.
import { memo, type ReactNode, useMemo } from "react";

import { raw } from "../../raw.js";
import { Select } from "../../ui/Select.js";
import type { Face } from "../api/api.js";
import { count, plural } from "../format.js";
import { Failure } from "../parts/Failure.js";
import { Rows } from "../parts/Rows.js";
import { countUpTo, type Tape } from "./tape.js";
import { type Frames, MOST } from "./use-frames.js";

const ROW = 26;
/**
 * The longest text of a row, in characters. More would not fit on a screen, but would be laid out.
 */
const WIDEST = 200;

interface Props {
  read: Frames;
  face: Face;
  onFace: (face: Face) => void;
  /** The only op to show; all if empty. */
  op: string;
  onOp: (op: string) => void;
  at: number | undefined;
  onAt: (seq: number) => void;
}

export function FrameList({ read, face, onFace, op, onOp, at, onAt }: Props): ReactNode {
  const ops = useMemo(
    () => [...new Set([...read.names, ...(op ? [op] : [])])].sort(),
    [read.names, op],
  );
  const { tape } = read;
  const some = useMemo(() => (op === "" ? undefined : tape.named(op)), [tape, op]);
  const length = some?.length ?? tape.length;
  /** The index in the tape of a row's frame. */
  const nth = (n: number) => some?.[n] ?? n;
  const place = at === undefined ? -1 : countUpTo(length, at - 1, (n) => tape.seq(nth(n)));
  const chosen = place < length ? place : -1;
  return (
    <div className="frame-list">
      <div className="row">
        <Select
          label="Face"
          isQuiet
          value={face}
          onChange={(event) => onFace(event.target.value as Face)}
        >
          <option value="cap">CAP v1</option>
          <option value="cap-v2">CAP v2</option>
          <option value="ag-ui">AG-UI</option>
        </Select>
        <Select label="Only" isQuiet value={op} onChange={(event) => onOp(event.target.value)}>
          <option value="">all frames</option>
          {ops.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </Select>
        <span className="muted" role="status">
          {plural(length, "frame")}
          {read.isWhole ? "" : ", reading on…"}
          {tape.length >= MOST ? `; beyond ${count(MOST)} only the download has them` : ""}
        </span>
      </div>
      {read.error !== undefined && <Failure error={read.error} onAgain={read.again} />}
      <div className="marks content" role="table" aria-label="Frames" aria-rowcount={length}>
        <Rows
          label="Frames"
          count={length}
          row={ROW}
          shown={chosen < 0 ? undefined : chosen}
          render={(n) => (
            <FrameRow key={n} n={n} tape={tape} nth={nth(n)} isChosen={n === chosen} onAt={onAt} />
          )}
        />
      </div>
      {chosen >= 0 && (
        <pre className="frame-whole content" tabIndex={0} aria-label="The chosen frame">
          {raw(tape.frame(nth(chosen)).text)}
        </pre>
      )}
    </div>
  );
}

interface RowProps {
  n: number;
  tape: Tape;
  /** The index of the frame in the tape. */
  nth: number;
  isChosen: boolean;
  onAt: (seq: number) => void;
}

const FrameRow = memo(function FrameRow({ n, tape, nth, isChosen, onAt }: RowProps): ReactNode {
  const { seq, name, data } = tape.frame(nth);
  return (
    <div className="frame-row" role="row" aria-rowindex={n + 1} data-chosen={isChosen}>
      <span role="cell">
        <button type="button" className="link" onClick={() => onAt(seq)}>
          {seq}
        </button>
      </span>
      <span role="cell">{name}</span>
      <span role="cell" className="frame-data">
        {data.slice(0, WIDEST)}
      </span>
    </div>
  );
}, isSameRow);

/** In a longer tape, existing frames have the same indices. */
function isSameRow(before: RowProps, next: RowProps): boolean {
  return (
    before.n === next.n &&
    before.nth === next.nth &&
    before.isChosen === next.isChosen &&
    before.onAt === next.onAt &&
    before.tape.pieces[0] === next.tape.pieces[0]
  );
}
