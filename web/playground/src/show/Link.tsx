// A link that an agent wrote.
import type { ReactNode } from "react";

import { safeLink } from "../safe-url.js";

interface Props {
  address: string;
  title?: string | undefined;
  children: ReactNode;
}

/** A link that leaves nothing behind; an address that may not be followed stays text. */
export function Link({ address, title, children }: Props): ReactNode {
  const href = safeLink(address);
  if (href === undefined) return <span title="This address is not followed.">{children}</span>;
  return (
    <a href={href} title={title} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}
