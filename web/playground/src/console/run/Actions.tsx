// Stop and purge. Neither has a shortcut; each says what it is about to do, and «stopped» only once it is true.
import { type FormEvent, type ReactNode, useState } from "react";

import { Button } from "../../ui/Button.js";
import { Icon } from "../../ui/Icon.js";
import type { Row } from "../api/types.js";
import { useConsole } from "../context.js";
import { isOver } from "../format.js";
import { without } from "../list/list.js";
import { Dialog } from "../parts/Dialog.js";
import { Failure } from "../parts/Failure.js";
import { navigate } from "../router.js";
import { ROOT } from "../url.js";

export function Actions({ row, onDone }: { row: Row; onDone: () => void }): ReactNode {
  const [asked, setAsked] = useState<"stop" | "purge" | null>(null);
  return (
    <>
      {!isOver(row.state) && <Button look="destructive" size="small" onClick={() => setAsked("stop")}><Icon name="stop" /> Stop…</Button>}
      <Button size="small" onClick={() => setAsked("purge")}><Icon name="trash" /> Purge…</Button>
      {asked === "stop" && <Stop row={row} onClose={() => { setAsked(null); onDone(); }} />}
      {asked === "purge" && <Purge row={row} onClose={() => setAsked(null)} />}
    </>
  );
}

/** An action that waits for its answer. */
function useAct(act: () => Promise<unknown>, then: () => void) {
  const [state, setState] = useState<"asked" | "acting" | "done">("asked");
  const [error, setError] = useState<unknown>(undefined);
  const run = () => {
    setState("acting");
    setError(undefined);
    act().then(
      () => {
        setState("done");
        then();
      },
      (failure: unknown) => {
        setState("asked");
        setError(failure);
      },
    );
  };
  return { state, error, run };
}

function Stop({ row, onClose }: { row: Row; onClose: () => void }): ReactNode {
  const { api } = useConsole();
  const { state, error, run } = useAct(() => api.stop(row.stream_id), () => {});
  return (
    <Dialog name="stop-title" title="Stop this run?" onClose={onClose}>
      <Named row={row} />
      <p>Its viewers get a CLOSE. What it has said stays.</p>
      {error !== undefined && <Failure error={error} onAgain={run} />}
      <div className="row">
        <Button onClick={onClose}>{state === "done" ? "Close" : "Let it run"}</Button>
        <Button look="destructive" disabled={state !== "asked"} onClick={run}>{{ asked: "Stop it", acting: "Stopping…", done: "Stopped" }[state]}</Button>
      </div>
    </Dialog>
  );
}

/** Digits of an id that have to be typed. */
const LAST = 4;

function Purge({ row, onClose }: { row: Row; onClose: () => void }): ReactNode {
  const { api, shelf } = useConsole();
  const [typed, setTyped] = useState("");
  const leave = () => {
    shelf.change((list) => without(list, row.stream_id));
    navigate(`${ROOT}/runs`, { replace: true });
  };
  const { state, error, run } = useAct(() => api.purge(row.stream_id), leave);
  const isRight = typed.trim().toLowerCase() === row.stream_id.slice(-LAST);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (isRight) run();
  };
  return (
    <Dialog name="purge-title" title="Erase this run?" onClose={onClose}>
      <Named row={row} />
      <p>Its packets and its request are erased for good{isOver(row.state) ? "" : ", and it is stopped first"}. The claim stays: its key starts no second run.</p>
      <form onSubmit={submit}>
        <label className="field">
          <span className="field-label">The last {LAST} digits of <code>{row.stream_id}</code></span>
          <input className="input" value={typed} autoComplete="off" spellCheck={false} maxLength={LAST} onChange={(event) => setTyped(event.target.value)} />
        </label>
        {error !== undefined && <Failure error={error} onAgain={run} />}
        <div className="row">
          <Button onClick={onClose}>Keep it</Button>
          <Button type="submit" look="destructive" disabled={!isRight || state !== "asked"}>{state === "acting" ? "Erasing…" : "Erase it"}</Button>
        </div>
      </form>
    </Dialog>
  );
}

function Named({ row }: { row: Row }): ReactNode {
  return <p>Agent <b>{row.agent}</b>, tenant <b>{row.tenant}</b>{row.session ? <>, session <b className="break">{row.session}</b></> : ""}.</p>;
}
