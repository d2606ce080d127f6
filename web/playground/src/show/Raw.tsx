// Something as it came, for whoever wants to see it.
import type { ReactNode } from "react";

import { raw } from "../raw.js";

interface Props {
  title: string;
  value: unknown;
  /** Shown at once: it stands in for something that should be there. */
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
