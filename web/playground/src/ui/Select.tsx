import type { ReactNode, SelectHTMLAttributes } from "react";

interface Props extends SelectHTMLAttributes<HTMLSelectElement> {
  label: string;
  /** The label is for screen readers only. */
  isQuiet?: boolean;
}

/** A native select: it works with every keyboard and every phone. */
export function Select({ label, isQuiet, children, ...rest }: Props): ReactNode {
  return (
    <label className="field">
      <span className={isQuiet ? "sr-only" : "field-label"}>{label}</span>
      <select className="select" {...rest}>
        {children}
      </select>
    </label>
  );
}
