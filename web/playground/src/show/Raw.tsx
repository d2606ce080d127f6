// A value unchanged, collapsed by default.
import type { ReactNode } from "react";

import { raw } from "../raw.js";

interface Props {
  title: string;
  value: unknown;
  /** Expanded at once, because it replaces a view that failed. */
  isOpen?: boolean;
}

export function Raw({ title, value, isOpen = false }: Props): ReactNode {
  return (
    <details className="thought raw" open={isOpen}>
      <summary>{title}</summary>
      <pre tabIndex={0}>{raw(value)}</pre>
    </details>
  );
}
