// A conversation as its user saw it: all runs, also failed and partial ones, and the pauses between
// them.
import { type ReactNode, type RefObject, useEffect, useRef, useState } from "react";

import { Boundary } from "../../show/Boundary.js";
import { Turn } from "../../show/Turn.js";
import { Button } from "../../ui/Button.js";
import { Icon } from "../../ui/Icon.js";
import { Refused } from "../api/api.js";
import type { Conversation, NumberedTurn, RunRow, RunRows } from "../generated/answers.js";
import { useConsole, useFeed } from "../context.js";
import { clock, plural, span, tokens } from "../format.js";
import { Failure } from "../parts/Failure.js";
import { PurgeDialog } from "../parts/PurgeDialog.js";
import { StateBadge } from "../parts/StateBadge.js";
import { Withheld } from "../parts/Withheld.js";
import { Link, navigate } from "../router.js";
import { Fold, questionOf, textOf } from "../run/packets.js";
import { read as readPiece, Tape } from "../run/tape.js";
import { ROOT, to } from "../url.js";
import { useQuery } from "../use-query.js";

interface Props {
  tenant: string;
  session: string;
}

/** The shortest pause that is shown. */
const PAUSE = 60_000;

export function Session({ tenant, session }: Props): ReactNode {
  const { api, me } = useConsole();
  const [isAsked, setAsked] = useState(me.content === "shown");
  const mayRead = me.may.includes("content") && me.content !== "never";
  const result = useQuery(isAsked && mayRead ? `session ${tenant} ${session}` : null, (signal) =>
    api.session(tenant, session, {}, signal),
  );
  // Until the visitor requests content, the runs show whether the session exists, without any
  // content.
  const known = useQuery(
    me.content === "shown" && mayRead ? null : `runs of ${tenant} ${session}`,
    (signal) => api.runs({ tenant, session, limit: 1 }, signal),
  );
  useFeed((event) => {
    if (event.type !== "run" || event.run.session !== session) return;
    result.again();
    known.again();
  });
  const error = result.error ?? known.error;
  if ((error instanceof Refused && error.status === 404) || known.value?.runs.length === 0)
    return <Missing tenant={tenant} session={session} found={known.value} />;
  const isThere = (result.value ?? known.value) !== undefined;
  return (
    <div className="view session">
      <header className="run-title">
        <h1>
          Session <code className="break">{session}</code>
        </h1>
        {isThere && (
          <div className="row">
            <Link
              className="button button-outline button-small"
              href={to.runs({ tenant, session })}
            >
              <Icon name="list" /> Its runs
            </Link>
            {me.actions && me.may.includes("act") && (
              <PurgeSession tenant={tenant} session={session} />
            )}
          </div>
        )}
      </header>
      {isThere && !(mayRead && isAsked) && <Withheld may={mayRead} onAsk={() => setAsked(true)} />}
      {error !== undefined && (
        <Failure
          error={error}
          onAgain={() => {
            result.again();
            known.again();
          }}
        />
      )}
      {result.value && <Turns found={result.value} />}
    </div>
  );
}

/** There is no such session. Shows how far back the search went, and where to search further. */
function Missing({ tenant, session, found }: Props & { found: RunRows | undefined }): ReactNode {
  const isWhole = found?.next == null;
  return (
    <div className="view">
      <h1>No such session</h1>
      <p className="card empty">
        There is no session <code className="break">{session}</code> that you may see
        {isWhole ? (
          ". It may have been purged, or its time is over."
        ) : (
          <>
            , back to{" "}
            {found.looked_back_to
              ? clock(found.looked_back_to, Date.now())
              : "where the gateway looked"}
            . <Link href={to.runs({ tenant, session })}>Look on</Link>
          </>
        )}
      </p>
    </div>
  );
}

function Turns({ found }: { found: Conversation }): ReactNode {
  const runs = [...found.runs].sort((a, b) => (a.stream_id < b.stream_id ? -1 : 1));
  const used = tokens(found.usage);
  const now = Date.now();
  return (
    <>
      <p className="muted">
        {plural(runs.length, "run")}
        {used ? ` · ${used} tokens` : ""}
        {found.next != null ? " · older ones are in the list of its runs" : ""}
      </p>
      <ol className="plain conversation">
        {runs.map((row, n) => (
          <li key={row.stream_id}>
            <Pause before={runs[n - 1]} row={row} />
            <p className="muted turn-head">
              <Link href={to.run(row.stream_id)}>
                <StateBadge state={row.state} /> {clock(row.created_at, now)}
              </Link>
              {row.fault && (
                <>
                  {" "}
                  · <code>{row.fault}</code> {row.fault_title}
                </>
              )}
              {row.attempts.length > 1 && ` · ${plural(row.attempts.length, "attempt")}`}
            </p>
            <SeenRun
              row={row}
              turn={found.turns.find(({ stream_id }) => stream_id === row.stream_id)}
            />
          </li>
        ))}
      </ol>
    </>
  );
}

function Pause({ before, row }: { before: RunRow | undefined; row: RunRow }): ReactNode {
  if (!before) return null;
  const pause = Date.parse(row.created_at) - Date.parse(before.closed_at ?? before.updated_at);
  return pause > PAUSE ? <p className="pause muted">{span(pause)} later</p> : null;
}

/** One run, loaded when it is visible. */
function SeenRun({ row, turn }: { row: RunRow; turn: NumberedTurn | undefined }): ReactNode {
  const { api } = useConsole();
  const [isSeen, place] = useSeen();
  const question = textOf(turn?.messages.find(({ role }) => role === "user")?.parts);
  const read = useQuery(isSeen ? `seen ${row.stream_id} ${row.packets}` : null, async (signal) => {
    const [frames, body] = await Promise.all([
      api.frames(row.stream_id, { face: "cap" }, signal).then((response) => response.text()),
      question === "" ? api.body(row.stream_id, signal) : "",
    ]);
    const tape = Tape.EMPTY.with(await readPiece(frames, "cap"));
    const fold = new Fold();
    await fold.reach(tape, tape.length, signal);
    return {
      id: row.stream_id,
      question: question || questionOf(body),
      state: fold.upTo(tape, tape.length),
    };
  });
  return (
    <div ref={place} className="content seen-run">
      {read.error !== undefined && <Failure error={read.error} onAgain={read.again} />}
      {read.value && (
        <Boundary
          of={read.value}
          instead={<p className="muted">This answer could not be shown.</p>}
        >
          <Turn turn={read.value} />
        </Boundary>
      )}
    </div>
  );
}

function useSeen(): [boolean, RefObject<HTMLDivElement | null>] {
  const place = useRef<HTMLDivElement>(null);
  const [isSeen, setSeen] = useState(false);
  useEffect(() => {
    if (!place.current || isSeen) return;
    const watch = new IntersectionObserver(
      (found) => found.some(({ isIntersecting }) => isIntersecting) && setSeen(true),
      { rootMargin: "400px" },
    );
    watch.observe(place.current);
    return () => watch.disconnect();
  }, [isSeen]);
  return [isSeen, place];
}

function PurgeSession({ tenant, session }: Props): ReactNode {
  const { api } = useConsole();
  const [isAsked, setAsked] = useState(false);
  return (
    <>
      <Button size="small" onClick={() => setAsked(true)}>
        <Icon name="trash" /> Purge…
      </Button>
      {isAsked && (
        <PurgeDialog
          title="Erase this session?"
          id={session}
          act={() => api.purgeSession(tenant, session)}
          then={() => navigate(`${ROOT}/runs`, { replace: true })}
          onClose={() => setAsked(false)}
        >
          <p>
            All its runs are stopped and erased for good, tenant <b>{tenant}</b>. Their claims stay.
          </p>
        </PurgeDialog>
      )}
    </>
  );
}
