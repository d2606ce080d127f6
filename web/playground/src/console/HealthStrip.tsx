// The health of the gateway in one line: as text first, and in colour as well.
import { type ReactNode, useEffect, useState } from "react";

import { Refused } from "./api/api.js";
import type { Health } from "./generated/answers.js";
import { useConsole, useFeed, useFeedState } from "./context.js";
import { count, latency, plural, span } from "./format.js";
import { Link } from "./router.js";
import { ROOT, to } from "./url.js";
import { useQuery, useNow } from "./use-query.js";

const EVERY = 5_000;
const STATES: Readonly<Record<Health["state"], readonly ["good" | "warning" | "danger", string]>> =
  {
    ready: ["good", "Ready"],
    draining: ["warning", "Draining: no new runs are taken"],
    journal_broken: ["danger", "The journal is broken: nothing can be written"],
  };

export function HealthStrip(): ReactNode {
  const { api, me } = useConsole();
  const [health, setHealth] = useState<Health | undefined>(undefined);
  const now = useNow(EVERY);
  const result = useQuery("health", api.health);
  useFeed((event) => {
    if (event.type === "state") setHealth((before) => before && { ...before, ...event.health });
  });
  useEffect(() => {
    result.again();
  }, [now, result.again]);
  useEffect(() => {
    setHealth(result.value);
  }, [result.value]);
  if (result.error !== undefined)
    return (
      <aside aria-label="Health" className="strip-line tone-danger">
        <strong role="status">
          {isOfJournal(result.error)
            ? "The journal does not answer."
            : "The gateway does not answer."}
        </strong>{" "}
        What you see is from before.
      </aside>
    );
  return health ? (
    <HealthLine health={health} version={me.version} />
  ) : (
    <aside aria-label="Health" className="strip-line">
      …
    </aside>
  );
}

function isOfJournal(error: unknown): boolean {
  return error instanceof Refused && error.code === "journal_unavailable";
}

function HealthLine({ health, version }: { health: Health; version: string }): ReactNode {
  const feed = useFeedState();
  // Each of several gateways reports its own health.
  const here = health.replica && health.replica.of > 1 ? " here" : "";
  const [tone, text] = STATES[health.state] ?? (["warning", health.state] as const);
  return (
    <aside aria-label="Health" className={`strip-line tone-${tone}`} data-health={health.state}>
      <strong role="status">
        <span className="strip-dot" aria-hidden="true" />
        {text}
      </strong>
      <Link href={to.runs({ state: "running" })}>
        {count(health.running)} running{here}
      </Link>
      <Link href={to.runs({ state: "waiting" })}>
        {count(health.waiting)} waiting{here}
      </Link>
      <span>{plural(health.responses, "open response")}</span>
      {health.append_p95_ms != null && <span>append p95 {latency(health.append_p95_ms)}</span>}
      <Link href={`${ROOT}/faults?hours=1`} data-high={health.faults_5m > 0}>
        {plural(health.faults_5m, "fault")} in 5 min
      </Link>
      <span className="muted">
        {health.version || version} · up {span(health.uptime_seconds * 1000)}
        {health.replica ? ` · replica ${health.replica.n} of ${health.replica.of}` : ""}
        {feed === "away" ? " · feed paused" : ""}
      </span>
    </aside>
  );
}
