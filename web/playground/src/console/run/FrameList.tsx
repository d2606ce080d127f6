// The frames as they were sent, in any face of CAP or AG-UI; only what is on screen is an element.
import { type ReactNode, useMemo } from "react";

import { raw } from "../../raw.js";
import { Select } from "../../ui/Select.js";
import type { Face } from "../api/api.js";
import { count, plural } from "../format.js";
import { Failure } from "../parts/Failure.js";
import { Rows } from "../parts/Rows.js";
import { countUpTo, nameOf, type SentFrame } from "./packets.js";
import { type Frames, MOST } from "./use-frames.js";

const ROW = 26;

interface Props {
  read: Frames;
  face: Face;
  onFace: (face: Face) => void;
  /** Only these; all if it is empty. */
  op: string;
  onOp: (op: string) => void;
  at: number | undefined;
  onAt: (seq: number) => void;
}

export function FrameList({ read, face, onFace, op, onOp, at, onAt }: Props): ReactNode {
  const ops = useMemo(() => [...new Set([...read.names, ...(op ? [op] : [])])].sort(), [read.names, op]);
  const frames = useMemo(() => (op === "" ? read.frames : read.frames.filter((frame) => nameOf(frame) === op)), [read.frames, op]);
  const place = at === undefined ? -1 : countUpTo(frames, at - 1, ({ seq }) => seq);
  const chosen = place < frames.length ? place : -1;
  return (
    <div className="frame-list">
      <div className="row">
        <Select label="Face" isQuiet value={face} onChange={(event) => onFace(event.target.value as Face)}>
          <option value="cap">CAP v1</option>
          <option value="cap-v2">CAP v2</option>
          <option value="ag-ui">AG-UI</option>
        </Select>
        <Select label="Only" isQuiet value={op} onChange={(event) => onOp(event.target.value)}>
          <option value="">all frames</option>
          {ops.map((name) => <option key={name}>{name}</option>)}
        </Select>
        <span className="muted" role="status">{plural(frames.length, "frame")}{read.isWhole ? "" : ", reading on…"}{read.frames.length >= MOST ? `; beyond ${count(MOST)} only the download has them` : ""}</span>
      </div>
      {read.error !== undefined && <Failure error={read.error} onAgain={read.again} />}
      <div className="marks content" role="table" aria-label="Frames" aria-rowcount={frames.length}>
        <Rows label="Frames" count={frames.length} row={ROW} shown={chosen < 0 ? undefined : chosen}
          render={(n) => <FrameRow key={n} n={n} frame={frames[n]!} isChosen={n === chosen} onAt={onAt} />} />
      </div>
      {chosen >= 0 && frames[chosen] && <pre className="frame-whole content" tabIndex={0} aria-label="The chosen frame">{raw(frames[chosen].text)}</pre>}
    </div>
  );
}

function FrameRow({ n, frame, isChosen, onAt }: { n: number; frame: SentFrame; isChosen: boolean; onAt: (seq: number) => void }): ReactNode {
  return (
    <div className="frame-row" role="row" aria-rowindex={n + 1} data-chosen={isChosen}>
      <span role="cell"><button type="button" className="link" onClick={() => onAt(frame.seq)}>{frame.seq}</button></span>
      <span role="cell">{nameOf(frame)}</span>
      <span role="cell" className="frame-data">{frame.data.slice(0, 300)}</span>
    </div>
  );
}
