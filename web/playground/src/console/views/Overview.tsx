// The runs that need attention by the gateway's rules, and the most frequent faults.
import { type ReactNode, useEffect } from "react";

import { useConsole, useNews } from "../context.js";
import { age, plural } from "../format.js";
import { Failure } from "../parts/Failure.js";
import { StateBadge } from "../parts/StateBadge.js";
import { Link } from "../router.js";
import { ROOT, to } from "../url.js";
import { useQuery, useNow } from "../use-query.js";

/** The interval of queries, because silence causes no event. */
const EVERY = 5_000;
/** The shortest interval of queries, because runs may begin and end a hundred times a second. */
const BUSY = 1_000;
const HOUR = 3_600_000;

export function Overview(): ReactNode {
  const { api } = useConsole();
  const overview = useQuery("overview", api.overview);
  const now = useNow(EVERY);
  useNews(overview.again, BUSY);
  useEffect(() => {
    overview.again();
  }, [now, overview.again]);
  const { value, error } = overview;
  const since = new Date(now - HOUR).toISOString();
  return (
    <div className="view overview">
      <h1>Overview</h1>
      {error !== undefined && <Failure error={error} onAgain={overview.again} />}
      <section aria-labelledby="attention">
        <h2 id="attention">Needs attention</h2>
        {value?.attention.length === 0 && <p className="card empty">Nothing needs you.</p>}
        <ul className="plain">
          {value?.attention.map(({ run, why, sentence }) => (
            <li key={run.stream_id} className="card attention" data-why={why}>
              <Link href={to.run(run.stream_id)}>
                <StateBadge state={run.state} /> {run.agent}
              </Link>
              <span>{sentence}</span>
              <span className="muted">began {age(run.created_at, now)} ago</span>
            </li>
          ))}
        </ul>
      </section>
      <section aria-labelledby="failing">
        <h2 id="failing">What fails, in the last hour</h2>
        {value?.faults.length === 0 && (
          <p className="card empty">This gateway has met no fault in the last hour.</p>
        )}
        <ol className="plain">
          {value?.faults.map(({ code, title, agent, count }) => (
            <li key={`${code} ${agent}`} className="card">
              <Link
                href={
                  agent === "" ? `${ROOT}/faults?hours=1` : to.runs({ fault: code, agent, since })
                }
              >
                <strong>{plural(count, "time")}</strong> <code>{code}</code>
              </Link>{" "}
              {title}
              <span className="muted"> · {agent || "refused, without a run"}</span>
            </li>
          ))}
        </ol>
        {/* Counts are of this process. The journal knows what was before it. */}
        <p>
          In the journal: <Link href={to.runs({ state: "running" })}>what runs</Link>,{" "}
          <Link href={to.runs({ state: "waiting" })}>what waits</Link>,{" "}
          <Link href={to.runs({ state: "failed", since })}>what failed in the last hour</Link>.
        </p>
      </section>
    </div>
  );
}
