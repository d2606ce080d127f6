// "Break it": controls to cut the connection, and every fault of the catalogue.
import { CATALOGUE } from "capstan";
import { type ReactNode, useState } from "react";

import type { Trouble } from "../line.js";
import { Button } from "../ui/Button.js";
import { Icon } from "../ui/Icon.js";
import { Select } from "../ui/Select.js";
import { Switch } from "../ui/Switch.js";

interface Props {
  isRunning: boolean;
  trouble: Trouble;
  onTrouble: (trouble: Trouble) => void;
  onCut: () => void;
  onFault: (command: string) => void;
}

export function BreakBar({ isRunning, trouble, onTrouble, onCut, onFault }: Props): ReactNode {
  return (
    <section className="panel" aria-label="Break it">
      <h2>Break it</h2>
      <Button look="destructive" onClick={onCut} disabled={!isRunning}>
        <Icon name="cut" /> Cut my connection
      </Button>
      <Select
        label="Cut by itself"
        value={trouble.cutEvery}
        onChange={(event) => onTrouble({ ...trouble, cutEvery: Number(event.target.value) })}
      >
        <option value={0}>never</option>
        {[1, 3, 5, 10, 50].map((n) => (
          <option key={n} value={n}>
            {n === 1 ? "after every packet" : `every ${n} packets`}
          </option>
        ))}
      </Select>
      <Switch
        label="Forget my place"
        hint="Resume without a cursor: everything is sent again, and repeats are dropped."
        isOn={trouble.isForgetful}
        onChange={(isForgetful) => onTrouble({ ...trouble, isForgetful })}
      />
      <Faults isRunning={isRunning} onFault={onFault} />
    </section>
  );
}

function Faults({
  isRunning,
  onFault,
}: {
  isRunning: boolean;
  onFault: (command: string) => void;
}): ReactNode {
  const [code, setCode] = useState<string>(CATALOGUE[0].code);
  const [wait, setWait] = useState("");
  const option = wait === "" ? "" : ` --retry-after ${wait}`;
  return (
    <form
      className="faults"
      onSubmit={(event) => {
        event.preventDefault();
        onFault(`/fault ${code}${option}`);
      }}
    >
      <Select label="Fail with" value={code} onChange={(event) => setCode(event.target.value)}>
        {CATALOGUE.map((fault) => (
          <option key={fault.code} value={fault.code}>{`${fault.code} – ${fault.title}`}</option>
        ))}
      </Select>
      <label className="field field-short">
        <span className="field-label">Retry after (s)</span>
        <input
          className="input"
          type="number"
          min={0}
          max={3600}
          inputMode="numeric"
          value={wait}
          placeholder="–"
          onChange={(event) => setWait(event.target.value)}
        />
      </label>
      <Button type="submit" disabled={isRunning}>
        Fail
      </Button>
    </form>
  );
}
