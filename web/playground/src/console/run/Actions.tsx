// Stop and purge. Neither has a shortcut. Each explains its effect, and shows «stopped» only when
// that is true.
import { type ReactNode, useState } from "react";

import { Button } from "../../ui/Button.js";
import { Icon } from "../../ui/Icon.js";
import type { RunRow } from "../generated/answers.js";
import { useConsole } from "../context.js";
import { isOver } from "../format.js";
import { without } from "../list/list.js";
import { Dialog } from "../parts/Dialog.js";
import { Failure } from "../parts/Failure.js";
import { PurgeDialog } from "../parts/PurgeDialog.js";
import { navigate } from "../router.js";
import { ROOT } from "../url.js";
import { useAct } from "../use-act.js";

export function Actions({ row, onDone }: { row: RunRow; onDone: () => void }): ReactNode {
  const [asked, setAsked] = useState<"stop" | "purge" | null>(null);
  return (
    <>
      {!isOver(row.state) && (
        <Button look="destructive" size="small" onClick={() => setAsked("stop")}>
          <Icon name="stop" /> Stop…
        </Button>
      )}
      <Button size="small" onClick={() => setAsked("purge")}>
        <Icon name="trash" /> Purge…
      </Button>
      {asked === "stop" && (
        <Stop
          row={row}
          onClose={() => {
            setAsked(null);
            onDone();
          }}
        />
      )}
      {asked === "purge" && <Purge row={row} onClose={() => setAsked(null)} />}
    </>
  );
}

function Stop({ row, onClose }: { row: RunRow; onClose: () => void }): ReactNode {
  const { api } = useConsole();
  const { state, error, run } = useAct(
    () => api.stop(row.stream_id),
    () => {},
  );
  return (
    <Dialog name="stop-title" title="Stop this run?" onClose={onClose}>
      <Named row={row} />
      <p>Its viewers get a CLOSE. Its output stays.</p>
      {error !== undefined && <Failure error={error} onAgain={run} />}
      <div className="row">
        <Button onClick={onClose}>{state === "done" ? "Close" : "Let it run"}</Button>
        <Button look="destructive" disabled={state !== "asked"} onClick={run}>
          {{ asked: "Stop it", acting: "Stopping…", done: "Stopped" }[state]}
        </Button>
      </div>
    </Dialog>
  );
}

function Purge({ row, onClose }: { row: RunRow; onClose: () => void }): ReactNode {
  const { api, shelf } = useConsole();
  const leave = () => {
    shelf.change((list) => without(list, row.stream_id));
    navigate(`${ROOT}/runs`, { replace: true });
  };
  return (
    <PurgeDialog
      title="Erase this run?"
      id={row.stream_id}
      act={() => api.purge(row.stream_id)}
      then={leave}
      onClose={onClose}
    >
      <Named row={row} />
      <p>
        Its packets and its request are erased for good
        {isOver(row.state) ? "" : ", and it is stopped first"}. The claim stays: its key starts no
        second run.
      </p>
    </PurgeDialog>
  );
}

function Named({ row }: { row: RunRow }): ReactNode {
  return (
    <p>
      Agent <b>{row.agent}</b>, tenant <b>{row.tenant}</b>
      {row.session ? (
        <>
          , session <b className="break">{row.session}</b>
        </>
      ) : (
        ""
      )}
      .
    </p>
  );
}
