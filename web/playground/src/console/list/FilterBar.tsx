// The filters of the list: presets, and a field for each filter. All of them are in the address.
import { type ReactNode, useEffect, useState } from "react";

import { Button } from "../../ui/Button.js";
import { Select } from "../../ui/Select.js";
import { seesSeveral, useConsole } from "../context.js";
import { RunStatus } from "../generated/answers.js";
import { Link } from "../router.js";
import { type Filters, searchOf, to } from "../url.js";
import { useQuery } from "../use-query.js";
import { presets } from "./presets.js";

interface Props {
  filters: Filters;
  onChange: (changed: Partial<Filters>) => void;
}

export function FilterBar({ filters, onChange }: Props): ReactNode {
  const { api, me } = useConsole();
  const agents = useQuery("agents", api.agents).value?.agents ?? [];
  const isSet = searchOf(filters) !== "";
  return (
    <div className="filters">
      <nav className="row presets" aria-label="Presets">
        {presets(Date.now()).map(({ name, filters: chosen }) => (
          <Link
            key={name}
            className="button button-outline button-small"
            href={to.runs(chosen)}
            aria-current={searchOf(chosen) === searchOf(filters) ? "true" : undefined}
          >
            {name}
          </Link>
        ))}
        {isSet && (
          <Link className="button button-ghost button-small" href={to.runs()}>
            All runs
          </Link>
        )}
      </nav>
      <div className="row fields">
        <Select
          label="State"
          isQuiet
          value={filters.state}
          onChange={(event) => onChange({ state: event.target.value })}
        >
          <option value="">any state</option>
          {withChosen(Object.values(RunStatus), filters.state).map((state) => (
            <option key={state}>{state}</option>
          ))}
        </Select>
        <Select
          label="Agent"
          isQuiet
          value={filters.agent}
          onChange={(event) => onChange({ agent: event.target.value })}
        >
          <option value="">any agent</option>
          {withChosen(
            agents.map(({ name }) => name),
            filters.agent,
          ).map((name) => (
            <option key={name}>{name}</option>
          ))}
        </Select>
        <TextField
          label="Fault code"
          value={filters.fault}
          onChange={(fault) => onChange({ fault })}
        />
        <TextField
          label="Session"
          value={filters.session}
          onChange={(session) => onChange({ session })}
        />
        {seesSeveral(me) && (
          <TextField
            label="Tenant"
            value={filters.tenant}
            onChange={(tenant) => onChange({ tenant })}
          />
        )}
        <Moment label="Since" value={filters.since} onChange={(since) => onChange({ since })} />
        <Moment label="Until" value={filters.until} onChange={(until) => onChange({ until })} />
      </div>
    </div>
  );
}

/** The choices, with the one of the address even if it does not exist. */
function withChosen(names: readonly string[], chosen: string): readonly string[] {
  return [...new Set([...names, ...(chosen === "" ? [] : [chosen])])];
}

/** A text field that takes effect on Enter, or when it loses the focus. */
function TextField({
  label,
  value,
  onChange,
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
}): ReactNode {
  const [text, setText] = useState(value);
  useEffect(() => {
    setText(value);
  }, [value]);
  const settle = () => text.trim() !== value && onChange(text.trim());
  return (
    <input
      className="input"
      aria-label={label}
      placeholder={label}
      value={text}
      spellCheck={false}
      onChange={(event) => setText(event.target.value)}
      onBlur={settle}
      onKeyDown={(event) => event.key === "Enter" && settle()}
    />
  );
}

/** A time in the browser's zone. The address has it in UTC. */
function Moment({
  label,
  value,
  onChange,
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
}): ReactNode {
  if (value === "")
    return (
      <Button
        size="small"
        look="ghost"
        onClick={() =>
          onChange(new Date(Date.now() - (label === "Since" ? 3_600_000 : 0)).toISOString())
        }
      >
        {label}…
      </Button>
    );
  const local = new Date(Date.parse(value) - new Date(value).getTimezoneOffset() * 60_000);
  const shown = Number.isNaN(local.getTime()) ? "" : local.toISOString().slice(0, 19);
  return (
    <label className="row moment">
      <span className="muted">{label}</span>
      <input
        className="input"
        type="datetime-local"
        step={1}
        value={shown}
        onChange={(event) =>
          onChange(event.target.value ? new Date(event.target.value).toISOString() : "")
        }
      />
    </label>
  );
}
