// An id or a command, with a button that copies it.
import type { ReactNode } from "react";

import { CopyButton } from "../../ui/Copy.js";

export function Id({
  label,
  value,
  children,
}: {
  label: string;
  value: string;
  children?: ReactNode;
}): ReactNode {
  return (
    <div className="id">
      <dt>{label}</dt>
      <dd>
        {children ?? <code>{value}</code>}
        <CopyButton text={value} label={label} />
      </dd>
    </div>
  );
}
