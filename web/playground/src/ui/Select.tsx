import { type ReactNode, type SelectHTMLAttributes, useId } from "react";

interface Props extends SelectHTMLAttributes<HTMLSelectElement> {
  label: string;
  /** The label is for screen readers only. */
  isQuiet?: boolean;
}

/** A native select, because it works with every keyboard and phone. */
export function Select({ label, isQuiet, children, ...rest }: Props): ReactNode {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id} className={isQuiet ? "sr-only" : "field-label"}>
        {label}
      </label>
      <select id={id} className="select" {...rest}>
        {children}
      </select>
    </div>
  );
}
