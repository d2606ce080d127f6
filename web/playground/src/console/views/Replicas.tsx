// The gateways that share the journal.
import { type ReactNode, useEffect } from "react";

import { Badge } from "../../ui/Badge.js";
import { useConsole } from "../context.js";
import { count, latency, span } from "../format.js";
import { Failure } from "../parts/Failure.js";
import { useQuery, useNow } from "../use-query.js";

const TONES = { live: "good", draining: "warning", gone: "danger" } as const;

export function Replicas(): ReactNode {
  const { api } = useConsole();
  const now = useNow(5_000);
  const result = useQuery("replicas", api.replicas);
  useEffect(() => {
    result.again();
  }, [now, result.again]);
  const replicas = result.value?.replicas ?? [];
  const isMixed = new Set(replicas.map(({ version }) => version)).size > 1;
  return (
    <div className="view">
      <h1>Replicas</h1>
      <p className="muted">
        A replica renews its lease with every heartbeat. Once it is silent for longer than the
        lease, it is gone, and others take over its runs. Open responses and append p95 are as of
        that heartbeat; a dash where it told none.
      </p>
      {result.error !== undefined && <Failure error={result.error} onAgain={result.again} />}
      {result.value && replicas.length === 0 && (
        <p className="card empty">The journal is this process's alone.</p>
      )}
      {replicas.length > 0 && (
        <div className="scroll" tabIndex={0} role="region" aria-label="Replicas">
          <table className="matrix">
            <thead>
              <tr>
                {[
                  "Replica",
                  "State",
                  "Version",
                  "Up",
                  "Last heartbeat",
                  "Runs owned",
                  "Open responses",
                  "Append p95",
                ].map((name) => (
                  <th key={name} scope="col">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {replicas.map((replica) => (
                <tr key={replica.id}>
                  <th scope="row">
                    {replica.name}
                    {replica.is_self && <span className="muted"> · this one</span>}
                    {replica.url && <span className="muted"> · {replica.url}</span>}
                  </th>
                  <td>
                    <Badge tone={TONES[replica.state] ?? "neutral"}>{replica.state}</Badge>
                  </td>
                  <td>
                    {replica.version}
                    {isMixed && <Badge tone="warning">mixed</Badge>}
                  </td>
                  <td>{span(replica.age_seconds * 1000)}</td>
                  <td>{span(replica.silent_seconds * 1000)} ago</td>
                  <td>
                    {count(replica.runs)}
                    {replica.state === "gone" && replica.runs > 0 && (
                      <Badge tone="danger">orphans</Badge>
                    )}
                  </td>
                  <td>{replica.responses == null ? "–" : count(replica.responses)}</td>
                  <td>{replica.append_p95_ms == null ? "–" : latency(replica.append_p95_ms)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}
