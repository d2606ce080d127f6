// The list of runs for some filters: pages at its end, the feed at its top.
import { useCallback, useEffect, useRef, useState } from "react";

import type { RunRow, RunRows } from "./generated/answers.js";
import { useConsole, useFeed } from "./context.js";
import { EMPTY, type List, withFresh, withLive, withPage } from "./list/list.js";
import { type Filters, searchOf } from "./url.js";

/** The rows of a page. The gateway's limit is 200. */
const PAGE = 100;

export interface Runs {
  list: List;
  /** The first answer has not come yet. */
  isNew: boolean;
  isBusy: boolean;
  error: unknown;
  /** Loads the next page. */
  more: () => void;
  again: () => void;
  showFresh: () => void;
}

/** `mayMove` is called for a new run: whether a row may be inserted at the top now. */
export function useRuns(filters: Filters, mayMove: () => boolean): Runs {
  const { api, shelf } = useConsole();
  const search = searchOf(filters);
  const [list, setList] = useState<List>(() => shelf.get(search)?.list ?? EMPTY);
  const [isNew, setNew] = useState(() => shelf.get(search) === undefined);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(undefined);
  const left = useRef<AbortController>(undefined);

  useEffect(() => {
    shelf.put(search, { top: 0, ...shelf.get(search), list });
  }, [list, search, shelf]);

  const ask = useCallback(
    (before: string | undefined, use: (page: RunRows) => void) => {
      left.current?.abort();
      const request = new AbortController();
      left.current = request;
      setBusy(true);
      setError(undefined);
      const settle = (then: () => void) => {
        if (request.signal.aborted) return;
        setBusy(false);
        then();
      };
      api.runs({ ...filters, before: before ?? filters.before, limit: PAGE }, request.signal).then(
        (page) => settle(() => use(page)),
        (failure: unknown) => settle(() => setError(failure)),
      );
    },
    // Filters are compared by their text.
    [api, search],
  );

  const take = useCallback(
    (row: RunRow) => setList((before) => withLive(before, row, filters, mayMove())),
    [search, mayMove],
  );

  /** Loads the first page: the whole of a new list, or the new rows of an existing one. */
  const refresh = useCallback(() => {
    ask(undefined, (page) => {
      setNew(false);
      setList((before) =>
        before.rows.length === 0
          ? withPage(EMPTY, page, PAGE)
          : page.runs.reduce((all, row) => withLive(all, row, filters, mayMove()), before),
      );
    });
  }, [ask, search, mayMove]);

  useEffect(() => {
    refresh();
    return () => left.current?.abort();
  }, [refresh]);

  useFeed((event) => {
    if (event.type === "run") take(event.run);
    if (event.type === "lagged") refresh();
  });

  const { next } = list;
  const more = useCallback(() => {
    if (!isBusy && next !== undefined)
      ask(next, (page) => setList((before) => withPage(before, page, PAGE)));
  }, [ask, isBusy, next]);
  const showFresh = useCallback(() => setList(withFresh), []);
  return { list, isNew, isBusy, error, more, again: refresh, showFresh };
}
