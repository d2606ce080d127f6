// The raw frames, rendered only while they are shown.
import { type ReactNode, useState } from "react";

export function Frames({ frames }: { frames: readonly string[] }): ReactNode {
  const [isOpen, setOpen] = useState(false);
  return (
    <details className="panel frames" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Raw frames ({frames.length})</summary>
      {isOpen && <pre tabIndex={0}>{frames.join("\n\n")}</pre>}
    </details>
  );
}
