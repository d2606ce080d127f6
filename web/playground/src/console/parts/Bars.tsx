// Stacked bars over time, as one picture. The user selects a range with the pointer or the arrow
// keys. A table beside it has the same data.
import { type KeyboardEvent, type PointerEvent, type ReactNode, useState } from "react";

export interface Bar {
  at: string;
  /** The values from bottom to top. */
  parts: readonly number[];
}

interface Props {
  bars: readonly Bar[];
  /** The colour of each part. */
  tones: readonly string[];
  label: string;
  /** The id of the usage instructions. */
  describedBy: string;
  /** The description of a range. */
  describe: (from: Bar, to: Bar) => string;
  onChoose: (from: Bar, to: Bar) => void;
}

/** The selected range, as times, because bars move on during the selection. */
interface Mark {
  from: string;
  to: string;
}

const HEIGHT = 100;

export function Bars({ bars, tones, label, describedBy, describe, onChoose }: Props): ReactNode {
  const [mark, setMark] = useState<Mark | null>(null);
  const last = bars.length - 1;
  // A start that has left the picture counts as its beginning.
  const place = (at: string) =>
    Math.max(
      0,
      bars.findIndex((bar) => bar.at === at),
    );
  const [from, to] = mark
    ? ([place(mark.from), place(mark.to)].sort((a, b) => a - b) as [number, number])
    : [last, last];
  const put = (at: number, isLonger: boolean) =>
    setMark({ from: isLonger && mark ? mark.from : bars[at]!.at, to: bars[at]!.at });
  const choose = () => {
    if (mark) onChoose(bars[from]!, bars[to]!);
    setMark(null);
  };
  const press = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.altKey || event.metaKey || last < 0) return;
    const next = led(event.key, mark ? place(mark.to) : undefined, last);
    if (next !== undefined) put(next, event.shiftKey);
    else if (event.key === "Enter" || event.key === " ") choose();
    else if (event.key === "Escape") setMark(null);
    else return;
    event.preventDefault();
  };
  const under = ({ currentTarget, clientX }: PointerEvent) => {
    const { left, width } = currentTarget.getBoundingClientRect();
    return Math.min(last, Math.max(0, Math.floor(((clientX - left) / width) * bars.length)));
  };
  const begin = (event: PointerEvent) => {
    event.currentTarget.setPointerCapture(event.pointerId);
    put(under(event), false);
  };
  const isHeld = ({ currentTarget, pointerId }: PointerEvent) =>
    currentTarget.hasPointerCapture(pointerId);
  const text = mark && describe(bars[from]!, bars[to]!);
  return (
    <div
      className="bars"
      role="slider"
      tabIndex={0}
      aria-label={label}
      aria-describedby={describedBy}
      aria-valuemin={0}
      aria-valuemax={Math.max(0, last)}
      aria-valuenow={Math.max(0, mark ? place(mark.to) : last)}
      aria-valuetext={text ?? "nothing is marked"}
      onKeyDown={press}
      onBlur={() => setMark(null)}
      onPointerDown={begin}
      onPointerMove={(event) => isHeld(event) && put(under(event), true)}
      onPointerUp={choose}
      onPointerCancel={() => setMark(null)}
    >
      <svg
        viewBox={`0 0 ${Math.max(1, bars.length)} ${HEIGHT}`}
        preserveAspectRatio="none"
        aria-hidden="true"
      >
        {mark && (
          <rect className="bars-mark" x={from} y={0} width={to - from + 1} height={HEIGHT} />
        )}
        {tones.map((tone, n) => (
          <path key={tone} className={`tone-${tone}`} d={pathOf(bars, n, most(bars))} />
        ))}
      </svg>
      {text && <span className="bars-told">{text}</span>}
    </div>
  );
}

/** The bar that a key moves to. Without a selection, it starts beyond the end of the picture. */
function led(key: string, at: number | undefined, last: number): number | undefined {
  switch (key) {
    case "ArrowLeft":
      return at === undefined ? last : Math.max(0, at - 1);
    case "ArrowRight":
      return at === undefined ? 0 : Math.min(last, at + 1);
    case "Home":
      return 0;
    case "End":
      return last;
    default:
      return undefined;
  }
}

/** All bars of one part as a single path, because elements are expensive. */
function pathOf(bars: readonly Bar[], part: number, most: number): string {
  return bars
    .map(({ parts }, n) => {
      const below = (sum(parts.slice(0, part)) / most) * HEIGHT;
      const height = ((parts[part] ?? 0) / most) * HEIGHT;
      return height === 0 ? "" : `M${n + 0.08} ${HEIGHT - below}h0.840v${-height}h-0.840Z`;
    })
    .join("");
}

function most(bars: readonly Bar[]): number {
  return Math.max(1, ...bars.map(({ parts }) => sum(parts)));
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((all, number) => all + number, 0);
}
