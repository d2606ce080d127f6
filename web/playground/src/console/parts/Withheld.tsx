// Shown in place of content: why it is hidden, or how to see it.
import type { ReactNode } from "react";

import { Button } from "../../ui/Button.js";
import { Icon } from "../../ui/Icon.js";
import type { Me } from "../generated/answers.js";
import { useConsole } from "../context.js";

/** `may`: whether this visitor may see the content on request. */
export function Withheld({ may, onAsk }: { may: boolean; onAsk: () => void }): ReactNode {
  const { me } = useConsole();
  if (!may || me.content === "never")
    return (
      <p className="card empty">
        <Icon name="shield" /> {whyNot(me)}
      </p>
    );
  // The audit records only operators' reads, because tenants read their own content.
  return (
    <p className="card empty">
      <Icon name="eye" /> The content is shown on request
      {me.who === "operator" ? ", and the request is logged" : ""}.{" "}
      <Button size="small" look="primary" onClick={onAsk}>
        Show content
      </Button>
    </p>
  );
}

function whyNot({ content, may }: Me): string {
  if (content === "never")
    return 'This gateway shows no content: console.content is "never".';
  if (may.includes("content"))
    return "You may not see this content: its tenant does not allow it.";
  return "You may not see this content: your key shows the shape of runs only.";
}
