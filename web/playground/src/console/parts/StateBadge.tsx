// The state of a run as an icon and a word, never as a colour alone.
import type { ReactNode } from "react";

import { Badge, type Tone } from "../../ui/Badge.js";
import { Icon, type IconName } from "../../ui/Icon.js";
import type { RunStatus } from "../generated/answers.js";

const LOOKS: Readonly<Record<RunStatus, readonly [Tone, IconName]>> = {
  running: ["info", "play"],
  waiting: ["warning", "clock"],
  failed: ["danger", "cross"],
  stopped: ["neutral", "stop"],
  done: ["good", "check"],
  healed: ["good", "mend"],
};

export function StateBadge({ state }: { state: RunStatus }): ReactNode {
  const [tone, icon] = LOOKS[state] ?? (["neutral", "help"] as const);
  return (
    <Badge tone={tone}>
      <Icon name={icon} />
      {state}
    </Badge>
  );
}
