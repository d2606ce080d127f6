import type { ReactNode } from "react";

export type Tone = "neutral" | "good" | "info" | "warning" | "danger";

export function Badge({
  tone = "neutral",
  children,
}: {
  tone?: Tone;
  children: ReactNode;
}): ReactNode {
  return <span className={`badge tone-${tone}`}>{children}</span>;
}
