// A long list of rows of equal height. Only the rows on the screen are elements.
import {
  type ReactNode,
  type RefObject,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from "react";

import { grow, type Range, range, reveal, total } from "../list/window.js";

interface Props {
  count: number;
  /** The height of a row in pixels. */
  row: number;
  render: (n: number) => ReactNode;
  /** The row that must be visible. */
  shown?: number | undefined;
  top?: number | undefined;
  onTop?: ((top: number) => void) | undefined;
  /** Called when the end of the list is near. */
  onEnd?: (() => void) | undefined;
  box?: RefObject<HTMLDivElement | null>;
  label: string;
}

/** How many rows before the end the next page is loaded. */
const AHEAD = 30;
/**
 * The most rows that are added per frame. A whole screen at once would block a slow machine while
 * the user scrolls.
 */
const MORE = 3;
/** Rows that appear at once with a new list. The rest of the screen takes a few frames. */
const FIRST = 8;
/** The interval of updates while the user scrolls fast, in milliseconds. */
const PAUSE = 100;

export function Rows({
  count,
  row,
  render,
  shown,
  top: first = 0,
  onTop,
  onEnd,
  box,
  label,
}: Props): ReactNode {
  const own = useRef<HTMLDivElement>(null);
  const view = box ?? own;
  const [place, setPlace] = useState({ top: first, height: 800 });
  const wanted = range(place.top, place.height, row, count);
  const { first: from, end } = useSteps(wanted, range(place.top, 0, row, count, 0).first, count);

  useLayoutEffect(() => {
    const node = view.current;
    if (!node) return;
    // Setting the scroll position or reading a height would cause an extra layout. The observer
    // reports the height later.
    if (first > 0) node.scrollTop = first;
    const sizes = new ResizeObserver(() =>
      setPlace({ top: node.scrollTop, height: node.clientHeight }),
    );
    sizes.observe(node);
    return () => sizes.disconnect();
    // The start position is used once.
  }, []);

  useEffect(() => {
    const node = view.current;
    if (!node || shown === undefined) return;
    node.scrollTop = reveal(shown, node.scrollTop, node.clientHeight, row);
  }, [shown, row, view]);

  const isNear = wanted.end > 0 && wanted.end >= count - AHEAD;
  useEffect(() => {
    if (isNear) onEnd?.();
  }, [isNear, count, onEnd]);

  const scrolled = () => {
    const node = view.current;
    if (!node) return;
    setPlace({ top: node.scrollTop, height: node.clientHeight });
    onTop?.(node.scrollTop);
  };
  return (
    <div
      ref={view}
      className="rows"
      role="rowgroup"
      aria-label={label}
      tabIndex={0}
      onScroll={scrolled}
    >
      <div className="rows-all" role="presentation" style={{ height: total(row, count) }}>
        <div role="presentation" style={{ transform: `translateY(${from * row}px)` }}>
          {Array.from({ length: end - from }, (_, n) => render(from + n))}
        </div>
      </div>
    </div>
  );
}

/**
 * Renders a few rows at first, and more with each frame. While the user scrolls fast, only some
 * rows are rendered at intervals, because nobody could read all of them.
 */
function useSteps(wanted: Range, seen: number, count: number): Range {
  const [, setFrame] = useState(0);
  const there = useRef<Range>({ first: 0, end: 0 });
  const pause = useRef<{ timer?: ReturnType<typeof setTimeout>; isOver: boolean }>({
    isOver: false,
  });
  const isKnown = there.current.end > there.current.first && there.current.end <= count;
  const isNear = there.current.first < wanted.end && wanted.first < there.current.end;
  const now = !isKnown
    ? grow({ first: seen, end: seen }, wanted, seen, FIRST)
    : isNear || pause.current.isOver
      ? grow(there.current, wanted, seen, MORE)
      : there.current;
  const isWhole = now.first === wanted.first && now.end === wanted.end;
  const isOnItsWay = now.first < wanted.end && wanted.first < now.end;
  useLayoutEffect(() => {
    there.current = now;
    pause.current.isOver = false;
  });
  useLayoutEffect(() => {
    if (isWhole || !isOnItsWay) return;
    const next = requestAnimationFrame(() => setFrame((frame) => frame + 1));
    return () => cancelAnimationFrame(next);
  });
  useLayoutEffect(() => {
    if (isWhole || isOnItsWay) return;
    pause.current.timer ??= setTimeout(() => {
      pause.current = { isOver: true };
      setFrame((frame) => frame + 1);
    }, PAUSE);
  });
  useEffect(() => () => clearTimeout(pause.current.timer), []);
  return now;
}
