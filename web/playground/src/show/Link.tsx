// A link from an agent's text.
import type { ReactNode } from "react";

import { safeLink } from "../safe-url.js";

interface Props {
  address: string;
  title?: string | undefined;
  children: ReactNode;
}

/** A link without referrer and opener. An address that is not allowed stays text. */
export function Link({ address, title, children }: Props): ReactNode {
  const href = safeLink(address);
  if (href === undefined) return <span title="This address is not followed.">{children}</span>;
  return (
    <a href={href} title={title} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}
