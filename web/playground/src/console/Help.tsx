// The list of shortcuts, and the switch that turns them off.
import { type ReactNode, useState } from "react";

import { Button } from "../ui/Button.js";
import { Switch } from "../ui/Switch.js";
import { areOn, switchKeys } from "./keys.js";
import { Dialog } from "./parts/Dialog.js";

const KEYS = [
  ["/", "find by any id"],
  ["j k", "the next and the last row of a list; Enter opens it"],
  ["[ ]", "the newer and the older run of the list you came from"],
  ["t", "the next tab of a run"],
  ["Space", "play and pause the replay"],
  [".", "blur content, for a shared screen"],
  ["g r", "runs"],
  ["g f", "faults"],
  ["g a", "agents"],
  ["g s", "the start"],
  ["?", "this"],
] as const;

export function Help({ onClose }: { onClose: () => void }): ReactNode {
  const [isOn, setOn] = useState(areOn);
  return (
    <Dialog name="help-title" title="Keys" onClose={onClose}>
      <dl className="keys">
        {KEYS.map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <Switch
        label="Shortcuts of single keys"
        isOn={isOn}
        onChange={(next) => {
          switchKeys(next);
          setOn(next);
        }}
      />
      <div className="row">
        <Button look="primary" onClick={onClose}>
          Close
        </Button>
      </div>
    </Dialog>
  );
}
