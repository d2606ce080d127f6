// A long list of equal rows: only those on screen are elements, however many there are.
import { type ReactNode, type RefObject, useEffect, useLayoutEffect, useRef, useState } from "react";

import { range, reveal, total } from "../list/window.js";

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

export function Rows({ count, row, render, shown, top: first = 0, onTop, onEnd, box, label }: Props): ReactNode {
  const own = useRef<HTMLDivElement>(null);
  const view = box ?? own;
  const [place, setPlace] = useState({ top: first, height: 800 });
  const { first: from, end } = range(place.top, place.height, row, count);

  useLayoutEffect(() => {
    const node = view.current;
    if (!node) return;
    node.scrollTop = first;
    const measure = () => setPlace({ top: node.scrollTop, height: node.clientHeight });
    measure();
    const sizes = new ResizeObserver(measure);
    sizes.observe(node);
    return () => sizes.disconnect();
    // Where it begins counts once.
  }, []);

  useEffect(() => {
    const node = view.current;
    if (!node || shown === undefined) return;
    node.scrollTop = reveal(shown, node.scrollTop, node.clientHeight, row);
  }, [shown, row, view]);

  const isNear = end > 0 && end >= count - AHEAD;
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
    <div ref={view} className="rows" role="rowgroup" aria-label={label} tabIndex={0} onScroll={scrolled}>
      <div className="rows-all" role="presentation" style={{ height: total(row, count) }}>
        <div role="presentation" style={{ transform: `translateY(${from * row}px)` }}>
          {Array.from({ length: end - from }, (_, n) => render(from + n))}
        </div>
      </div>
    </div>
  );
}
