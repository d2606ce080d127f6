// One run: its failure, its times, its content, and its actions.
import { type ReactNode, useDeferredValue, useEffect, useState } from "react";

import { Switch } from "../../ui/Switch.js";
import { type Face, Refused } from "../api/api.js";
import type { RunDetails } from "../generated/answers.js";
import { useConsole, useFeed } from "../context.js";
import { isOver } from "../format.js";
import { useShortcuts } from "../keys.js";
import { neighbours } from "../list/list.js";
import { Failure } from "../parts/Failure.js";
import { Tabs } from "../parts/Tabs.js";
import { Withheld } from "../parts/Withheld.js";
import { navigate, useAddress } from "../router.js";
import { AsAsked } from "../run/AsAsked.js";
import { AsSeen } from "../run/AsSeen.js";
import { AttemptCards } from "../run/AttemptCards.js";
import { AxisView } from "../run/AxisView.js";
import { FaultPanel } from "../run/FaultPanel.js";
import { FrameList } from "../run/FrameList.js";
import { ONLY_HERE, viewersSum } from "../run/happenings.js";
import { questionOf } from "../run/packets.js";
import { RequestBody } from "../run/RequestBody.js";
import { RunHeader } from "../run/RunHeader.js";
import { TakeHome } from "../run/TakeHome.js";
import { useFrames } from "../run/use-frames.js";
import { useMarks } from "../run/use-marks.js";
import { usePlace } from "../run/use-place.js";
import { to, withQuery } from "../url.js";
import { useQuery, useNow } from "../use-query.js";

const TABS = [
  ["seen", "As seen"],
  ["frames", "Frames"],
  ["attempts", "Attempts"],
  ["request", "Request"],
  ["home", "Take home"],
] as const;
type Tab = (typeof TABS)[number][0];

const FACES: readonly Face[] = ["cap", "cap-v2", "ag-ui"];

/** The interval of queries for an open run, because packets cause no events. */
const EVERY = 1_000;

export function Run({ id }: { id: string }): ReactNode {
  const { api } = useConsole();
  const result = useQuery(`run ${id}`, (signal) => api.run(id, signal));
  const isOpen = result.value !== undefined && !isOver(result.value.row.state);
  const now = useNow(isOpen ? EVERY : null);
  useFeed((event) => {
    if (event.type === "lagged" || (event.type === "run" && event.run.stream_id === id))
      result.again();
  });
  useEffect(() => {
    if (isOpen) result.again();
  }, [now, isOpen, result.again]);
  useNeighbours(id);
  if (result.error instanceof Refused && result.error.status === 404) {
    return (
      <div className="view">
        <h1>No such run</h1>
        <p className="card empty">
          There is no run <code>{id}</code> that you may see. It may have been purged, or its time
          is over.
        </p>
      </div>
    );
  }
  return (
    <div className="view run">
      {result.error !== undefined && <Failure error={result.error} onAgain={result.again} />}
      {result.value && <Whole key={id} detail={result.value} now={now} onAgain={result.again} />}
    </div>
  );
}

/** `[` and `]` walk through the list from which the run was opened. */
function useNeighbours(id: string): void {
  const { shelf } = useConsole();
  const { search } = useAddress();
  const state = history.state as { list?: string } | null;
  const list = state?.list ?? "";
  const walk = (side: "newer" | "older") => () => {
    const next = neighbours(shelf.get(list)?.list.rows ?? [], id)[side];
    if (next)
      navigate(withQuery(to.run(next), search, { at: undefined, zoom: undefined }), {
        state: { list },
      });
  };
  useShortcuts({ "[": walk("newer"), "]": walk("older") });
}

function Whole({
  detail,
  now,
  onAgain,
}: {
  detail: RunDetails;
  now: number;
  onAgain: () => void;
}): ReactNode {
  const { api, me } = useConsole();
  const { row } = detail;
  const { search } = useAddress();
  const query = new URLSearchParams(search);
  const chosen = TABS.find(([name]) => name === query.get("tab"))?.[0] ?? "seen";
  // The click takes effect at once. The tab's content is rendered in pieces.
  const tab = useDeferredValue(chosen);
  const [wanted, setAt] = usePlace();
  // A link may name a packet that does not exist yet.
  const at = wanted === undefined ? undefined : Math.min(wanted, row.packets);
  const [isAsked, setAsked] = useState(me.content === "shown");
  const face = FACES.find((name) => name === query.get("face")) ?? "cap";
  const mayRead = detail.may.content && isAsked;
  const marks = useMarks(row.stream_id, row.packets);
  const cap = useFrames(
    row.stream_id,
    "cap",
    row.packets,
    mayRead && (tab === "seen" || tab === "attempts" || (tab === "frames" && face === "cap")),
  );
  const other = useFrames(
    row.stream_id,
    face,
    row.packets,
    mayRead && tab === "frames" && face !== "cap",
  );
  const body = useQuery(
    mayRead && tab !== "frames" && tab !== "attempts" ? `body ${row.stream_id}` : null,
    (signal) => api.body(row.stream_id, signal),
  );

  // From the address at the time of the call, because a caller may hold an old function.
  const put = (changed: Readonly<Record<string, string | undefined>>) =>
    navigate(withQuery(location.pathname, location.search, changed), { replace: true });
  const choose = (next: Tab) => put({ tab: next === "seen" ? undefined : next });
  const step = () =>
    choose(TABS[(TABS.findIndex(([name]) => name === chosen) + 1) % TABS.length]![0]);
  useShortcuts({ t: step });

  const question = questionOf(body.value ?? "");
  const isAsAsked = query.get("as") === "asked";

  const shown: Record<Tab, () => ReactNode> = {
    seen: () => (
      <>
        {cap.error !== undefined && <Failure error={cap.error} onAgain={cap.again} />}
        {!cap.isWhole && cap.error === undefined && (
          <p className="muted" role="status">
            Reading… {cap.tape.length} of {row.packets} packets
          </p>
        )}
        {row.session && (
          <p>
            <Switch
              label="As the agent was asked"
              hint="The conversation as it was given to the agent, without turns that broke off"
              isOn={isAsAsked}
              onChange={(isOn) => put({ as: isOn ? "asked" : undefined })}
            />
          </p>
        )}
        {isAsAsked ? (
          <AsAsked row={row} question={question} />
        ) : (
          <AsSeen question={question} tape={cap.tape} at={at} onAt={setAt} />
        )}
      </>
    ),
    frames: () => (
      <FrameList
        read={face === "cap" ? cap : other}
        face={face}
        onFace={(next) => put({ face: next === "cap" ? undefined : next, op: undefined })}
        op={query.get("op") ?? ""}
        onOp={(op) => put({ op: op || undefined })}
        at={at}
        onAt={setAt}
      />
    ),
    attempts: () => <AttemptCards detail={detail} tape={cap.tape} now={now} onAt={setAt} />,
    request: () =>
      body.error !== undefined ? (
        <Failure error={body.error} onAgain={body.again} />
      ) : (
        body.value !== undefined && <RequestBody body={body.value} />
      ),
    home: () => <TakeHome row={row} body={body.value} mayRead={mayRead} />,
  };
  const isFree = tab === "attempts" || tab === "home";
  const sum =
    viewersSum(detail, me.replicas) ?? (me.replicas && !isOver(row.state) ? ONLY_HERE : undefined);
  return (
    <>
      <RunHeader detail={detail} now={now} onAgain={onAgain} />
      {detail.fault && <FaultPanel detail={detail} fault={detail.fault} now={now} />}
      <AxisView
        detail={detail}
        marks={marks.marks}
        now={now}
        at={at}
        onAt={setAt}
        zoom={query.get("zoom") ?? undefined}
        onZoom={(zoom) => put({ zoom })}
        isFolding={query.get("waits") !== "whole"}
        onFolding={(isOn) => put({ waits: isOn ? undefined : "whole" })}
      />
      {marks.error !== undefined && <Failure error={marks.error} onAgain={marks.again} />}
      {sum && <p className="muted">{sum}.</p>}
      {wanted !== at && (
        <p className="muted" role="status">
          There is no packet {wanted}
          {isOver(row.state) ? "" : " yet"}
          {row.packets > 0 && `: you see the last one, ${row.packets}`}.
        </p>
      )}
      <Tabs tabs={TABS} chosen={chosen} onChoose={choose} />
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${chosen}`} className="tab-panel">
        {!mayRead && !(isFree && detail.may.content) && (
          <Withheld may={detail.may.content} onAsk={() => setAsked(true)} />
        )}
        {(mayRead || isFree) && shown[tab]()}
      </div>
    </>
  );
}
