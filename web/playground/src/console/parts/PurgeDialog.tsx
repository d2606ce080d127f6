// The confirmation of an erasure: the user types the end of the name. Enter works once it is right,
// like the button.
import { type FormEvent, type ReactNode, useState } from "react";

import { Button } from "../../ui/Button.js";
import { plural } from "../format.js";
import { useAct } from "../use-act.js";
import { Dialog } from "./Dialog.js";
import { Failure } from "./Failure.js";

/** The number of characters to type. */
const LAST = 4;

interface Props {
  title: string;
  /** The whole name. */
  id: string;
  act: () => Promise<unknown>;
  /** Called after the erasure. */
  then: () => void;
  onClose: () => void;
  /** The description of the erasure. */
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
