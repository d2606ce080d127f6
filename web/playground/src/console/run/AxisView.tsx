// The time axis: a picture to zoom and drag, and a table with the same data for keyboards and
// screen readers.
import {
  Fragment,
  type KeyboardEvent,
  memo,
  type PointerEvent,
  type ReactNode,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "react";

import { Button } from "../../ui/Button.js";
import { Switch } from "../../ui/Switch.js";
import { useShownTheme } from "../../use-theme.js";
import type { Marks, RunDetails } from "../generated/answers.js";
import { count } from "../format.js";
import {
  after,
  type Axis,
  axisOf,
  LONG_WAIT,
  moved,
  scale as scaleOf,
  type Stretch,
  zoomed,
} from "./axis.js";
import { draw, heightOf, SIDE } from "./draw.js";
import { MarkTable } from "./MarkTable.js";

interface Props {
  detail: RunDetails;
  marks: Marks | undefined;
  now: number;
  at: number | undefined;
  onAt: (seq: number) => void;
  /** The visible part, `from-to` in milliseconds; everything if undefined. */
  zoom: string | undefined;
  onZoom: (zoom: string | undefined) => void;
  isFolding: boolean;
  onFolding: (isFolding: boolean) => void;
}

/** The parts of the picture, in the order of its legend. */
const LEGEND = ["attempt", "wait", "packet", "event", "error", "viewer"] as const;

/** The most movement of a click, in pixels. */
const CLICK = 4;
/**
 * The delay after which a zoom or drag ends, in milliseconds. Until then only this picture changes,
 * because a change of the address renders the whole page.
 */
const REST = 150;

export const AxisView = memo(function AxisView({
  detail,
  marks,
  now,
  at,
  onAt,
  zoom,
  onZoom,
  isFolding,
  onFolding,
}: Props): ReactNode {
  const axis = useMemo(() => axisOf(detail, now), [detail, now]);
  const hasLongWait = axis.waits.some(({ from, to }) => to - from > LONG_WAIT);
  const [isTable, setTable] = useState(false);
  const [held, hold] = useHeld((next) =>
    onZoom(
      next.from <= 0 && next.to >= axis.end
        ? undefined
        : `${Math.round(next.from)}-${Math.round(next.to)}`,
    ),
  );
  const view = held ?? viewOf(zoom, axis.end);
  const show = (next: Stretch) => hold(next, 0);
  const middle = (view.from + view.to) / 2;
  return (
    <section className="axis card" aria-labelledby="axis-title">
      <header className="row axis-head">
        <h2 id="axis-title">Time axis</h2>
        <span className="legend-line" aria-hidden="true">
          {LEGEND.map((kind) => (
            <Fragment key={kind}>
              <i data-of={kind} /> {kind}s{" "}
            </Fragment>
          ))}
        </span>
        <span className="row axis-tools">
          {hasLongWait && <Switch label="Fold waits" isOn={isFolding} onChange={onFolding} />}
          <Button
            size="small"
            aria-label="Zoom in"
            onClick={() => show(zoomed(view, middle, 0.5, axis.end))}
          >
            +
          </Button>
          <Button
            size="small"
            aria-label="Zoom out"
            onClick={() => show(zoomed(view, middle, 2, axis.end))}
          >
            −
          </Button>
          <Button size="small" disabled={zoom === undefined} onClick={() => onZoom(undefined)}>
            All
          </Button>
          <Button size="small" aria-expanded={isTable} onClick={() => setTable(!isTable)}>
            Table
          </Button>
        </span>
      </header>
      <Canvas
        axis={axis}
        marks={marks}
        view={view}
        at={at}
        isFolding={isFolding}
        onAt={onAt}
        onView={(next) => hold(next, REST)}
      />
      {marks?.sampled && (
        <p className="muted">
          A long stream: of its packets {count(marks.marks.length)} were read, and what the ledger
          knows.
        </p>
      )}
      {marks && !marks.complete && !marks.sampled && (
        <p className="muted">Read up to packet {count(marks.read_to)}.</p>
      )}
      {isTable && <MarkTable detail={detail} marks={marks?.marks ?? []} at={at} onAt={onAt} />}
    </section>
  );
}, isSame);

/**
 * Whether the picture stays the same. Frames that are loaded meanwhile do not change it. Handlers
 * use the address at the time of the call.
 */
function isSame(before: Props, next: Props): boolean {
  return (
    before.detail === next.detail &&
    before.marks === next.marks &&
    before.now === next.now &&
    before.at === next.at &&
    before.zoom === next.zoom &&
    before.isFolding === next.isFolding
  );
}

/**
 * A range during its selection, and its setter. `settle` is called when the range has not changed
 * for the delay.
 */
function useHeld(
  settle: (next: Stretch) => void,
): [Stretch | undefined, (next: Stretch, rest: number) => void] {
  const [held, setHeld] = useState<Stretch | undefined>(undefined);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const hold = (next: Stretch, rest: number) => {
    clearTimeout(timer.current);
    const done = () => {
      setHeld(undefined);
      settle(next);
    };
    if (rest === 0) return done();
    setHeld(next);
    timer.current = setTimeout(done, rest);
  };
  return [held, hold];
}

function viewOf(zoom: string | undefined, end: number): Stretch {
  const [from, to] = (zoom ?? "").split("-").map(Number);
  return from !== undefined && to !== undefined && from < to
    ? { from, to: Math.min(to, end) }
    : { from: 0, to: end };
}

interface CanvasProps {
  axis: Axis;
  marks: Marks | undefined;
  view: Stretch;
  at: number | undefined;
  isFolding: boolean;
  onAt: (seq: number) => void;
  onView: (view: Stretch) => void;
}

function Canvas({ axis, marks, view, at, isFolding, onAt, onView }: CanvasProps): ReactNode {
  // The canvas is drawn with the colours of the theme, and again when the theme changes.
  useShownTheme();
  const canvas = useRef<HTMLCanvasElement>(null);
  const drag = useRef<{ x: number; view: Stretch; isMoved: boolean } | null>(null);
  const [width, setWidth] = useState(800);
  const list = marks?.marks;
  const times = useMemo(() => Float64Array.from(list ?? [], ([, t]) => t), [list]);
  const scale = useMemo(
    () => scaleOf(axis, width, view, isFolding),
    [axis, width, view.from, view.to, isFolding],
  );
  const place = useMemo(
    () => list?.findIndex(([seq]) => seq >= (at ?? Infinity)) ?? -1,
    [list, at],
  );

  useLayoutEffect(() => {
    const node = canvas.current?.parentElement;
    if (!node) return;
    const sizes = new ResizeObserver(() => setWidth(Math.max(1, node.clientWidth - 2 * SIDE)));
    sizes.observe(node);
    return () => sizes.disconnect();
  }, []);

  useEffect(() => {
    if (canvas.current)
      draw(canvas.current, {
        axis,
        marks: list ?? [],
        times,
        scale,
        view,
        width,
        at: place < 0 ? undefined : times[place],
      });
  });

  useEffect(() => {
    const node = canvas.current;
    if (!node) return;
    // React registers wheel listeners as passive, but a zoom must not scroll the page.
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY))
        return;
      event.preventDefault();
      const isZoom = event.ctrlKey || event.metaKey;
      onView(
        isZoom
          ? zoomed(view, scale.t(event.offsetX - SIDE), Math.exp(event.deltaY / 300), axis.end)
          : moved(view, (event.deltaX / width) * (view.to - view.from), axis.end),
      );
    };
    node.addEventListener("wheel", wheel, { passive: false });
    return () => node.removeEventListener("wheel", wheel);
  }, [axis, onView, scale, view, width]);

  const choose = (x: number) => {
    const found = list?.[Math.min(list.length - 1, Math.max(0, after(times, scale.t(x))))];
    if (found) onAt(found[0]);
  };
  const press = (event: PointerEvent<HTMLCanvasElement>) => {
    event.currentTarget.setPointerCapture(event.pointerId);
    drag.current = { x: event.clientX, view, isMoved: false };
  };
  const pull = (event: PointerEvent<HTMLCanvasElement>) => {
    const held = drag.current;
    if (!held) return;
    const by = held.x - event.clientX;
    held.isMoved ||= Math.abs(by) > CLICK;
    if (held.isMoved)
      onView(moved(held.view, (by / width) * (held.view.to - held.view.from), axis.end));
  };
  const release = (event: PointerEvent<HTMLCanvasElement>) => {
    if (drag.current && !drag.current.isMoved) choose(event.nativeEvent.offsetX - SIDE);
    drag.current = null;
  };
  const step = (event: KeyboardEvent<HTMLCanvasElement>) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined || !list || list.length === 0) return;
    event.preventDefault();
    const next =
      list[Math.min(list.length - 1, Math.max(0, (place < 0 ? list.length : place) + by))];
    if (next) onAt(next[0]);
  };
  return (
    <div className="axis-canvas">
      <canvas
        ref={canvas}
        role="img"
        tabIndex={0}
        aria-label="The run over time. The arrow keys move by a packet; below is a table."
        style={{ width: width + 2 * SIDE, height: heightOf(axis) }}
        onPointerDown={press}
        onPointerMove={pull}
        onPointerUp={release}
        onPointerCancel={() => {
          drag.current = null;
        }}
        onKeyDown={step}
      />
    </div>
  );
}
