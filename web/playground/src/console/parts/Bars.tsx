// Bars over time, stacked, as one picture; dragging over them chooses a stretch. A table says the same beside it.
import { type PointerEvent, type ReactNode, useState } from "react";

export interface Bar {
  at: string;
  /** From the bottom up. */
  parts: readonly number[];
}

interface Props {
  bars: readonly Bar[];
  /** The tone of each part. */
  tones: readonly string[];
  label: string;
  onChoose: (from: Bar, to: Bar) => void;
}

const HEIGHT = 100;

export function Bars({ bars, tones, label, onChoose }: Props): ReactNode {
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const most = Math.max(1, ...bars.map(({ parts }) => sum(parts)));
  const place = (event: PointerEvent<SVGSVGElement>) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    return Math.min(bars.length - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * bars.length)));
  };
  const begin = (event: PointerEvent<SVGSVGElement>) => {
    event.currentTarget.setPointerCapture(event.pointerId);
    setDrag({ from: place(event), to: place(event) });
  };
  const end = () => {
    if (drag) onChoose(bars[Math.min(drag.from, drag.to)]!, bars[Math.max(drag.from, drag.to)]!);
    setDrag(null);
  };
  return (
    <svg className="bars" role="img" aria-label={label} viewBox={`0 0 ${Math.max(1, bars.length)} ${HEIGHT}`} preserveAspectRatio="none"
      onPointerDown={begin} onPointerMove={(event) => drag && setDrag({ ...drag, to: place(event) })} onPointerUp={end} onPointerCancel={() => setDrag(null)}>
      {tones.map((tone, n) => <path key={tone} className={`tone-${tone}`} d={pathOf(bars, n, most)} />)}
      {drag && <rect className="bars-drag" x={Math.min(drag.from, drag.to)} y={0} width={Math.abs(drag.to - drag.from) + 1} height={HEIGHT} />}
    </svg>
  );
}

/** All bars of one part as a single path: elements are what costs. */
function pathOf(bars: readonly Bar[], part: number, most: number): string {
  return bars
    .map(({ parts }, n) => {
      const below = (sum(parts.slice(0, part)) / most) * HEIGHT;
      const height = ((parts[part] ?? 0) / most) * HEIGHT;
      return height === 0 ? "" : `M${n + 0.08} ${HEIGHT - below}h0.840v${-height}h-0.840Z`;
    })
    .join("");
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((all, number) => all + number, 0);
}
