// A long list of equal rows: only those on screen are elements, however many there are.
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
  /** The row that must be seen. */
  shown?: number | undefined;
  top?: number | undefined;
  onTop?: ((top: number) => void) | undefined;
  /** The end comes near. */
  onEnd?: (() => void) | undefined;
  box?: RefObject<HTMLDivElement | null>;
  label: string;
}

/** How many rows before the end the next page is asked for. */
const AHEAD = 30;
/**
 * Rows that come within one frame. A screen of them at once would hold a slow machine up while
 * somebody scrolls.
 */
const MORE = 3;
/** Rows that are there at once when a list appears; the rest of a screen takes a few frames. */
const FIRST = 8;
/** Milliseconds between two looks at what somebody flies past. */
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
    // To scroll or to ask for a height would lay the page out now, and again once it is whole.
    // Who watches is told when it is.
    if (first > 0) node.scrollTop = first;
    const sizes = new ResizeObserver(() =>
      setPlace({ top: node.scrollTop, height: node.clientHeight }),
    );
    sizes.observe(node);
    return () => sizes.disconnect();
    // Where it begins counts once.
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
 * Some of them at first, and a few more with each frame. Whoever flies past is shown a few now and
 * then: what nobody could read costs nothing.
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
