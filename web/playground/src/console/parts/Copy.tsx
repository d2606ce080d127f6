// An id or a command, with a button that copies it and says so.
import { type ReactNode, useEffect, useState } from "react";

import { Button } from "../../ui/Button.js";
import { Icon } from "../../ui/Icon.js";

export function CopyButton({ text, label }: { text: string; label: string }): ReactNode {
  const [isDone, setDone] = useState(false);
  useEffect(() => {
    if (!isDone) return;
    const timer = setTimeout(() => setDone(false), 2_000);
    return () => clearTimeout(timer);
  }, [isDone]);
  const copy = () => void copied(text).then(() => setDone(true));
  return (
    <Button size="icon" look="ghost" className="copy" aria-label={isDone ? `${label} copied` : `Copy ${label}`} title={`Copy ${label}`} onClick={copy}>
      <Icon name={isDone ? "check" : "copy"} />
    </Button>
  );
}

/** Over plain http the clipboard is not there; a selection is. */
async function copied(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const box = document.body.appendChild(document.createElement("textarea"));
  box.value = text;
  box.select();
  document.execCommand("copy");
  box.remove();
}

export function Id({ label, value, children }: { label: string; value: string; children?: ReactNode }): ReactNode {
  return (
    <div className="id">
      <dt>{label}</dt>
      <dd>{children ?? <code>{value}</code>}<CopyButton text={value} label={label} /></dd>
    </div>
  );
}
