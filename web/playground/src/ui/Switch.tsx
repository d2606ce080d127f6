import type { ReactNode } from "react";

interface Props {
  label: string;
  hint?: string;
  isOn: boolean;
  onChange: (isOn: boolean) => void;
}

/** A checkbox that looks like a switch, and is announced as one. */
export function Switch({ label, hint, isOn, onChange }: Props): ReactNode {
  return (
    <label className="switch" title={hint}>
      <input
        type="checkbox"
        role="switch"
        checked={isOn}
        onChange={(event) => onChange(event.target.checked)}
      />
      <span className="switch-track" aria-hidden="true" />
      {label}
    </label>
  );
}
