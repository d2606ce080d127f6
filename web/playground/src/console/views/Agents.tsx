// The agents and their statistics.
import type { ReactNode } from "react";

import { Badge } from "../../ui/Badge.js";
import type { AgentDetails } from "../generated/answers.js";
import { useConsole, useNews } from "../context.js";
import { age, count, span } from "../format.js";
import { Failure } from "../parts/Failure.js";
import { Link } from "../router.js";
import { to } from "../url.js";
import { useQuery, useNow } from "../use-query.js";

/** The interval of updates of ages, and the shortest interval of updates of numbers. */
const EVERY = 5_000;

export function Agents({ only }: { only?: string }): ReactNode {
  const { api } = useConsole();
  const now = useNow(EVERY);
  const result = useQuery("agents", api.agents);
  useNews(result.again, EVERY);
  const agents = result.value?.agents.filter(({ name }) => only === undefined || name === only);
  return (
    <div className="view">
      <h1>{only === undefined ? "Agents" : <>Agent {only}</>}</h1>
      {result.error !== undefined && <Failure error={result.error} onAgain={result.again} />}
      {agents?.length === 0 && (
        <p className="card empty">
          {only === undefined
            ? "No agent is configured."
            : "There is no such agent now. Its runs are still in the list."}
        </p>
      )}
      {agents && agents.length > 0 && (
        <p className="muted">
          p50 and p95 are steps of time: 50 and 95 in 100 first packets took no longer than that.
        </p>
      )}
      <ul className="plain cards">
        {agents?.map((agent) => (
          <li key={agent.name} className="card">
            <AgentCard agent={agent} now={now} />
          </li>
        ))}
      </ul>
      {only !== undefined && (
        <p>
          <Link href={to.runs({ agent: only })}>Its runs</Link> ·{" "}
          <Link href={to.runs({ agent: only, state: "failed" })}>those that failed</Link>
        </p>
      )}
    </div>
  );
}

const BREAKERS: Readonly<Record<string, readonly ["good" | "danger" | "warning", string]>> = {
  closed: ["good", "takes calls"],
  open: ["danger", "breaker open"],
  half_open: ["warning", "being tried"],
};

function AgentCard({ agent, now }: { agent: AgentDetails; now: number }): ReactNode {
  const { name, kind, provider, model, host, key_set, outcomes, last_fault, members, timeouts } =
    agent;
  return (
    <>
      <h2 className="card-title">
        <Link href={to.agent(name)}>{name}</Link> <Badge>{kind}</Badge>
        {key_set === false && <Badge tone="danger">no key is set</Badge>}
      </h2>
      <p className="muted">
        {[provider, model, host, key_set ? "key set" : ""].filter(Boolean).join(" · ")}
      </p>
      <dl className="facts">
        <Fact name="at work">
          <Link href={to.runs({ agent: name, state: "running" })}>
            {count(agent.running)} running
          </Link>
          ,{" "}
          <Link href={to.runs({ agent: name, state: "waiting" })}>
            {count(agent.waiting)} waiting
          </Link>
        </Fact>
        <Fact name="done">
          <Link href={to.runs({ agent: name, state: "done" })}>{count(outcomes.done)}</Link>
        </Fact>
        <Fact name="healed">
          <Link href={to.runs({ agent: name, state: "healed" })}>{count(outcomes.healed)}</Link>
        </Fact>
        <Fact name="failed">
          <Link href={to.runs({ agent: name, state: "failed" })}>{count(outcomes.failed)}</Link>
        </Fact>
        <Fact name="stopped">
          <Link href={to.runs({ agent: name, state: "stopped" })}>{count(outcomes.stopped)}</Link>
        </Fact>
        <Fact name="first packet" hint={STEPS}>
          {percentiles(agent.first_packet_ms)}
        </Fact>
        <Fact name="in the last hour" hint={STEPS}>
          {percentiles(agent.first_packet_ms_lately)}
        </Fact>
        <Fact name="attempts per run">
          {agent.attempts_per_run == null
            ? "–"
            : `${agent.attempts_per_run.toFixed(2)} of ${agent.max_attempts} at most`}
        </Fact>
        {agent.calls_per_attempt != null && (
          <Fact name="calls per attempt">{agent.calls_per_attempt.toFixed(2)}</Fact>
        )}
        <Fact name="last success">
          {agent.last_success_at ? `${age(agent.last_success_at, now)} ago` : "–"}
        </Fact>
        <Fact name="last fault">
          {last_fault ? (
            <>
              <code>{last_fault.code}</code> {age(last_fault.at, now)} ago
            </>
          ) : (
            "–"
          )}
        </Fact>
        {timeouts && (
          <Fact name="time-outs">
            {Object.entries(timeouts)
              .map(([name, seconds]) => `${name} ${seconds} s`)
              .join(", ")}
          </Fact>
        )}
      </dl>
      {members && members.length > 0 && (
        <ol className="members" aria-label="Members of the route">
          {members.map((member) => {
            const [tone, text] =
              BREAKERS[member.breaker ?? ""] ?? (["neutral", member.breaker ?? ""] as const);
            return (
              <li key={member.name}>
                {member.name} {text && <Badge tone={tone}>{text}</Badge>}
              </li>
            );
          })}
        </ol>
      )}
    </>
  );
}

/**
 * Times to the first packet are counted in steps. All times above the last step count as the last
 * one, so the true value may be longer.
 */
const LAST_STEP = 60_000;
const ABOVE = "30 s";
const STEPS =
  "First packets are counted by steps of time: so many in a hundred took no longer than this step.";

/** `p50 ≤ 800 ms, p95 ≤ 12 s`. */
export function percentiles(found: AgentDetails["first_packet_ms"]): string {
  const step = (ms: number | null | undefined) =>
    ms == null ? "–" : ms >= LAST_STEP ? `> ${ABOVE}` : `≤ ${span(ms).replace(".0 s", " s")}`;
  return found?.p50 == null ? "–" : `p50 ${step(found.p50)}, p95 ${step(found.p95)}`;
}

function Fact({
  name,
  hint,
  children,
}: {
  name: string;
  hint?: string;
  children: ReactNode;
}): ReactNode {
  return (
    <div title={hint}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
