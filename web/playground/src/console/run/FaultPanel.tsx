// The failure of a run first: why it failed, the meaning, and the remedy.
import { faultOf } from "capstan";
import type { ReactNode } from "react";

import { Raw } from "../../show/Raw.js";
import { Badge } from "../../ui/Badge.js";
import { Icon } from "../../ui/Icon.js";
import type { FaultDetails, RunDetails } from "../generated/answers.js";
import { plural } from "../format.js";
import { Link } from "../router.js";
import { to } from "../url.js";
import { faultHeading } from "./sentence.js";

const HOUR = 3_600_000;

export function FaultPanel({
  detail,
  fault,
  now,
}: {
  detail: RunDetails;
  fault: FaultDetails;
  now: number;
}): ReactNode {
  const isFinal = detail.row.state === "failed";
  const slug = faultOf(fault.code)?.slug;
  return (
    <section
      className={`card fault tone-${isFinal ? "danger" : "warning"}`}
      aria-labelledby="fault-title"
    >
      <h2 id="fault-title">
        <Icon name="alert" /> {faultHeading(detail)}
      </h2>
      <p className="fault-code">
        <code>{fault.code}</code> <strong>{fault.title}</strong>
      </p>
      <p>{fault.meaning ?? "Only its agent knows this code; the catalogue does not."}</p>
      {fault.remedy && (
        <p className="remedy">
          <b>What to do:</b> {fault.remedy}
        </p>
      )}
      <ul className="facts">
        {fault.severity && (
          <li>
            <Badge tone={isFinal ? "danger" : "warning"}>{fault.severity}</Badge>
          </li>
        )}
        {fault.domain && <li>domain {fault.domain}</li>}
        {fault.status != null && (
          <li>
            a client that waits for the whole answer sees HTTP {fault.status}; in a stream it is an
            ERROR packet
          </li>
        )}
        {fault.agui_code && <li>AG-UI code {fault.agui_code}</li>}
        {fault.retry_after != null && <li>retry after {fault.retry_after} s</li>}
        <li>
          <Others fault={fault} now={now} />
        </li>
        {slug && (
          <li>
            <a href={`/errors/${slug}`}>catalogue</a>
          </li>
        )}
      </ul>
      {fault.details != null && (
        <div className="content">
          <Raw title="Details of this run" value={fault.details} />
        </div>
      )}
    </section>
  );
}

/**
 * The counts belong to this process, but the list covers the journal. So the list may have runs
 * where the count is zero.
 */
function Others({
  fault: { code, others_last_hour },
  now,
}: {
  fault: FaultDetails;
  now: number;
}): ReactNode {
  if (others_last_hour === 0)
    return <Link href={to.runs({ fault: code })}>See others with this code</Link>;
  return (
    <Link href={to.runs({ fault: code, since: new Date(now - HOUR).toISOString() })}>
      {plural(others_last_hour, "other")} with this code in the last hour
    </Link>
  );
}
