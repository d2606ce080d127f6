// A button that copies a text and confirms it.
import { type ReactNode, useEffect, useState } from "react";

import { Button } from "./Button.js";
import { Icon } from "./Icon.js";

/** How long the confirmation is shown, in milliseconds. */
const SHOWN = 2_000;

export function CopyButton({ text, label }: { text: string; label: string }): ReactNode {
  const [isDone, setDone] = useState(false);
  useEffect(() => {
    if (!isDone) return;
    const timer = setTimeout(() => setDone(false), SHOWN);
    return () => clearTimeout(timer);
  }, [isDone]);
  const copy = () => void copied(text).then(() => setDone(true));
  return (
    <Button
      size="icon"
      look="ghost"
      className="copy"
      aria-label={isDone ? `${label} copied` : `Copy ${label}`}
      title={`Copy ${label}`}
      onClick={copy}
    >
      <Icon name={isDone ? "check" : "copy"} />
    </Button>
  );
}

/** Over plain http there is no clipboard API, so this copies a selection. */
async function copied(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const box = document.body.appendChild(document.createElement("textarea"));
  box.value = text;
  box.select();
  document.execCommand("copy");
  box.remove();
}
