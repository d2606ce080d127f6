// Usage and limits. A limit that is off is shown as such, not as 0 %.
import type { ReactNode } from "react";

import { Badge } from "../../ui/Badge.js";
import type { TenantDetails, Use } from "../generated/answers.js";
import { useConsole, useNews } from "../context.js";
import { bytes, count, plural, span } from "../format.js";
import { Failure } from "../parts/Failure.js";
import { Link } from "../router.js";
import { to } from "../url.js";
import { useQuery } from "../use-query.js";

const USES = [
  ["runs", "runs at once"],
  ["responses", "open responses"],
  ["requests_per_minute", "requests per minute"],
  ["sessions", "sessions"],
  ["bytes", "bytes stored"],
  ["tokens_today", "tokens today"],
] as const;

/** The interval of updates. Usage changes with each run, but readers need it less often. */
const EVERY = 5_000;

export function Tenants(): ReactNode {
  const { api } = useConsole();
  const result = useQuery("tenants", api.tenants);
  useNews(result.again, EVERY);
  return (
    <div className="view">
      <h1>Tenants</h1>
      {result.error !== undefined && <Failure error={result.error} onAgain={result.again} />}
      <ul className="plain cards">
        {result.value?.tenants.map((tenant) => (
          <li key={tenant.name} className="card">
            <TenantCard tenant={tenant} />
          </li>
        ))}
      </ul>
    </div>
  );
}

function TenantCard({ tenant }: { tenant: TenantDetails }): ReactNode {
  const refusals = Object.entries(tenant.refusals ?? {}).filter(([, n]) => n > 0);
  return (
    <>
      <h2 className="card-title">
        <Link href={to.runs({ tenant: tenant.name })}>{tenant.name}</Link>
        {tenant.no_store && <Badge tone="info">stores no content</Badge>}
      </h2>
      <dl className="uses">
        {USES.map(([name, label]) => {
          const use = tenant[name];
          return (
            use && (
              <UseBar key={name} label={label} use={use} shown={name === "bytes" ? bytes : count} />
            )
          );
        })}
      </dl>
      <p className="muted">
        {tenant.retention?.max_age_seconds != null && (
          <>stored for {span(tenant.retention.max_age_seconds * 1000)}</>
        )}
        {refusals.length > 0 && (
          <>
            {" "}
            · refused: {refusals.map(([limit, n]) => `${limit} ${plural(n, "time")}`).join(", ")}
          </>
        )}
      </p>
    </>
  );
}

/** The share of a limit from which a warning is shown. */
const NEAR = 0.9;

function UseBar({
  label,
  use: { used, limit },
  shown,
}: {
  label: string;
  use: Use;
  shown: (n: number) => string;
}): ReactNode {
  if (limit == null)
    return (
      <div className="use">
        <dt>{label}</dt>
        <dd>
          {shown(used)} <span className="muted">no limit</span>
        </dd>
      </div>
    );
  const share = limit > 0 ? used / limit : 0;
  const warning = warningOf(used, limit);
  return (
    <div className="use">
      <dt>{label}</dt>
      <dd>
        {shown(used)}{" "}
        <span className="muted">
          of {shown(limit)}
          {limit > 0 && `, ${count(share * 100)} %`}
        </span>
        {warning && (
          <>
            {" "}
            <Badge tone="warning">{warning}</Badge>
          </>
        )}
        <progress
          aria-label={label}
          max={1}
          value={Math.min(1, share)}
          data-high={warning !== undefined}
        />
      </dd>
    </div>
  );
}

/** Usage above a limit is possible: the limit may have been lowered. */
function warningOf(used: number, limit: number): string | undefined {
  if (used > limit) return "above the limit";
  if (limit === 0 || used < limit * NEAR) return undefined;
  return used === limit ? "at the limit" : "near the limit";
}
