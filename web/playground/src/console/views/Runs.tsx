// The list of runs. It is live and does not move: rows change in place, and new ones wait behind a
// button.
import { type ReactNode, useCallback, useEffect, useMemo, useRef, useState } from "react";

import { Button } from "../../ui/Button.js";
import { seesSeveral, useConsole, useFeedState } from "../context.js";
import { clock, plural } from "../format.js";
import { useShortcuts } from "../keys.js";
import { FilterBar } from "../list/FilterBar.js";
import { News } from "../list/News.js";
import { RunHead, RunListRow } from "../list/RunListRow.js";
import { Failure } from "../parts/Failure.js";
import { Rows } from "../parts/Rows.js";
import { navigate, useAddress } from "../router.js";
import { type Filters, filtersOf, searchOf, to } from "../url.js";
import { useNow } from "../use-query.js";
import { useNarrow } from "../use-narrow.js";
import { type Runs as Found, useRuns } from "../use-runs.js";

/** The heights of a row in pixels, as in the stylesheet. */
const WIDE = 38;
const NARROW = 62;

export function Runs(): ReactNode {
  const { search } = useAddress();
  const filters = filtersOf(search);
  // Other filters make another list.
  return <RunList key={searchOf(filters)} filters={filters} />;
}

function RunList({ filters }: { filters: Filters }): ReactNode {
  const { me, shelf } = useConsole();
  const search = searchOf(filters);
  const box = useRef<HTMLDivElement>(null);
  const whole = useRef<HTMLDivElement>(null);
  const isPointed = useRef(false);
  const [chosen, setChosen] = useState<number | undefined>(undefined);
  const mayMove = useCallback(
    () =>
      !isPointed.current &&
      !whole.current?.contains(document.activeElement) &&
      (box.current?.scrollTop ?? 0) === 0,
    [],
  );
  const runs = useRuns(filters, mayMove);
  const { rows } = runs.list;
  const row = useNarrow() ? NARROW : WIDE;
  const now = useNow();
  const withTenant = seesSeveral(me);

  const choose = (n: number) => setChosen(Math.min(Math.max(0, n), rows.length - 1));
  useShortcuts({ j: () => choose((chosen ?? -1) + 1), k: () => choose((chosen ?? 1) - 1) });
  useEffect(() => {
    if (chosen !== undefined)
      box.current
        ?.querySelector<HTMLElement>(`[data-row="${chosen}"] a`)
        ?.focus({ preventScroll: true });
  }, [chosen]);

  const point = (isOn: boolean) => () => {
    isPointed.current = isOn;
  };
  const { showFresh } = runs;
  const isWaiting = runs.list.fresh.length > 0;
  // When the user no longer reads the list, new rows are inserted. This depends on time and not on
  // the pointer: a finger leaves before its tap counts, and rows must not move in between.
  useEffect(() => {
    if (isWaiting && mayMove()) showFresh();
  }, [now, isWaiting, mayMove, showFresh]);
  const list = useRef(runs.list);
  useEffect(() => {
    list.current = runs.list;
  });
  const keepPlace = useCallback(
    (top: number) => shelf.put(search, { list: list.current, top }),
    [search, shelf],
  );
  const onEnd =
    runs.list.lookedBackTo === undefined && runs.error === undefined ? runs.more : undefined;
  // Computed when a row changes, not for each new run at the top, because those are frequent.
  const shown = useMemo(
    () => (
      <Rows
        key={row}
        box={box}
        label="Runs, newest first"
        count={rows.length}
        row={row}
        shown={chosen}
        top={shelf.get(search)?.top}
        onTop={keepPlace}
        onEnd={onEnd}
        render={(n) => (
          <RunListRow
            key={rows[n]!.stream_id}
            row={rows[n]!}
            n={n}
            now={now}
            search={search}
            withTenant={withTenant}
          />
        )}
      />
    ),
    [rows, row, chosen, now, search, withTenant, shelf, keepPlace, onEnd],
  );
  return (
    <div className="view view-list">
      <h1 className="sr-only">Runs</h1>
      <FilterBar
        filters={filters}
        onChange={(changed) => navigate(to.runs({ ...filters, before: "", ...changed }))}
      />
      {/* With the button: it must not go away from under the pointer either. */}
      <div ref={whole} className="list" onPointerEnter={point(true)} onPointerLeave={point(false)}>
        <News
          fresh={runs.list.fresh.length}
          isPast={filters.before !== ""}
          onShow={() => {
            showFresh();
            box.current?.scrollTo(0, 0);
          }}
          onNewest={() => navigate(to.runs({ ...filters, before: "" }))}
        />
        {runs.error !== undefined && (
          <Failure error={runs.error} onAgain={rows.length === 0 ? runs.again : runs.more} />
        )}
        <div
          className={`table ${withTenant ? "with-tenant" : ""}`}
          role="table"
          aria-label="Runs"
          aria-rowcount={rows.length + 1}
        >
          <RunHead withTenant={withTenant} />
          {shown}
        </div>
      </div>
      {/* Outside of the table, which may hold nothing but rows. */}
      <Foot runs={runs} now={now} isFiltered={search !== ""} />
    </div>
  );
}

/** The text at the end of the list. */
function Foot({
  runs,
  now,
  isFiltered,
}: {
  runs: Found;
  now: number;
  isFiltered: boolean;
}): ReactNode {
  const { list, isNew, isBusy, error } = runs;
  const isLive = useFeedState() === "live";
  if (error !== undefined) return null;
  if (isNew || (isBusy && list.next !== undefined)) return <p className="foot muted">Looking…</p>;
  if (list.lookedBackTo !== undefined) {
    return (
      <p className="foot">
        Looked back to {clock(list.lookedBackTo, now)}.{" "}
        <Button size="small" onClick={runs.more}>
          Go on
        </Button>
      </p>
    );
  }
  if (list.next !== undefined) return null;
  if (list.rows.length === 0)
    return (
      <p className="foot muted">
        {isFiltered
          ? "No run fits these filters."
          : `No runs yet. ${isLive ? "They appear here as they begin." : ""}`}
      </p>
    );
  return <p className="foot muted">That is all: {plural(list.rows.length, "run")}.</p>;
}
