// Asks before something is erased. Whoever means it types the end of its name; Enter counts once
// that is right, as the button does.
import { type FormEvent, type ReactNode, useState } from "react";

import { Button } from "../../ui/Button.js";
import { plural } from "../format.js";
import { useAct } from "../use-act.js";
import { Dialog } from "./Dialog.js";
import { Failure } from "./Failure.js";

/** Characters of a name that have to be typed. */
const LAST = 4;

interface Props {
  title: string;
  /** What it is called, whole. */
  id: string;
  act: () => Promise<unknown>;
  /** Once it is gone. */
  then: () => void;
  onClose: () => void;
  /** What is about to happen. */
  children: ReactNode;
}

export function PurgeDialog({ title, id, act, then, onClose, children }: Props): ReactNode {
  const [typed, setTyped] = useState("");
  const { state, error, run } = useAct(act, then);
  const last = id.slice(-LAST);
  const isRight = typed.trim().toLowerCase() === last.trim().toLowerCase();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (isRight && state === "asked") run();
  };
  return (
    <Dialog name="purge-title" title={title} onClose={onClose}>
      {children}
      <form onSubmit={submit}>
        <label className="field">
          <span className="field-label">
            The last {plural(last.length, "character")} of <code className="break">{id}</code>
          </span>
          <input
            className="input"
            value={typed}
            autoComplete="off"
            spellCheck={false}
            maxLength={LAST}
            onChange={(event) => setTyped(event.target.value)}
          />
        </label>
        {error !== undefined && <Failure error={error} onAgain={run} />}
        <div className="row">
          <Button onClick={onClose}>Keep it</Button>
          <Button type="submit" look="destructive" disabled={!isRight || state !== "asked"}>
            {state === "acting" ? "Erasing…" : "Erase it"}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
