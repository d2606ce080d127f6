// Draws the axis on one canvas, whatever the number of packets.
import type { Mark } from "../generated/answers.js";
import { bytes, span } from "../format.js";
import { after, type Axis, density, type Scale, type Stretch, ticks } from "./axis.js";

/** The vertical position of each lane. */
const LANES = { attempts: 22, waits: 22, packets: 56, viewers: 108 } as const;
/** The margin on both sides, so that the ends are fully visible. */
export const SIDE = 8;
const BAR = 22;
const PACKETS = 40;
/** The most viewers that are drawn. */
const VIEWERS = 6;
const VIEWER = 7;

/** The height of the picture. Empty lanes take no space. */
export function heightOf({ viewers }: Axis): number {
  return (
    LANES.packets +
    PACKETS +
    6 +
    (viewers.length === 0 ? 0 : 6 + Math.min(VIEWERS, viewers.length) * VIEWER)
  );
}

export interface Picture {
  axis: Axis;
  marks: readonly Mark[];
  times: ArrayLike<number>;
  scale: Scale;
  view: Stretch;
  /** The width without the margins. */
  width: number;
  /** The selected moment. */
  at: number | undefined;
}

type Colour = (token: string) => string;

export function draw(canvas: HTMLCanvasElement, picture: Picture): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round((picture.width + 2 * SIDE) * ratio);
  canvas.height = Math.round(heightOf(picture.axis) * ratio);
  context.scale(ratio, ratio);
  context.translate(SIDE, 0);
  const style = getComputedStyle(canvas);
  const colour: Colour = (token) => style.getPropertyValue(`--${token}`).trim();
  context.font = `11px ${style.fontFamily}`;
  context.textBaseline = "middle";
  ruler(context, picture, colour);
  waits(context, picture, colour);
  attempts(context, picture, colour);
  packets(context, picture, colour);
  viewers(context, picture, colour);
  place(context, picture, colour);
}

function ruler(
  context: CanvasRenderingContext2D,
  { axis, scale, view, width }: Picture,
  colour: Colour,
): void {
  context.strokeStyle = colour("border");
  context.fillStyle = colour("muted-foreground");
  let free = -Infinity;
  for (const tick of ticks(view, scale)) {
    const x = Math.round(scale.x(tick)) + 0.5;
    line(context, x, 14, x, heightOf(axis));
    const label = span(tick).replace(".0 s", " s");
    const left = Math.min(x + 3, width + SIDE - context.measureText(label).width);
    // After a fold, a tick may be too close to the last one.
    if (left < free) continue;
    context.fillText(label, left, 8);
    free = left + context.measureText(label).width + 8;
  }
}

function attempts(
  context: CanvasRenderingContext2D,
  { axis, scale }: Picture,
  colour: Colour,
): void {
  for (const { n, from, first, to, isOpen, fault, swallowed } of axis.attempts) {
    const tone = colour(fault ? "destructive" : isOpen ? "info" : "good");
    const [left, middle, right] = [
      scale.x(from),
      scale.x(first),
      Math.max(scale.x(to), scale.x(from) + 2),
    ];
    context.strokeStyle = tone;
    context.strokeRect(left + 0.5, LANES.attempts + 0.5, Math.max(1, right - left - 1), BAR - 1);
    context.fillStyle = tone;
    context.fillRect(middle, LANES.attempts, right - middle, BAR);
    if (right - left < 16) continue;
    const isFilled = middle - left < 14;
    context.fillStyle = isFilled ? colour("card") : tone;
    const label = swallowed > 0 ? `${n} · ${bytes(swallowed)} said again` : String(n);
    const isRoomy = right - Math.max(left, 0) > context.measureText(label).width + 10;
    context.fillText(
      isRoomy ? label : String(n),
      Math.max(left, 0) + 5,
      LANES.attempts + BAR / 2 + 1,
    );
  }
}

function waits(context: CanvasRenderingContext2D, { axis, scale }: Picture, colour: Colour): void {
  context.strokeStyle = colour("warning");
  for (const wait of axis.waits) {
    const [left, right] = [scale.x(wait.from), scale.x(wait.to)];
    context.save();
    context.beginPath();
    context.rect(left, LANES.waits, right - left, BAR);
    context.clip();
    for (let x = Math.max(left - BAR, -BAR); x < Math.min(right, 4096); x += 6)
      line(context, x, LANES.waits + BAR, x + BAR, LANES.waits);
    context.restore();
    const isFolded = scale.folds.some(({ from }) => from === wait.from);
    const label = `${isFolded ? "⋯ " : ""}${span(wait.to - wait.from)}`;
    if (right - left < context.measureText(label).width + 8) continue;
    context.fillStyle = colour("card");
    context.fillRect(
      (left + right - context.measureText(label).width) / 2 - 3,
      LANES.waits + 3,
      context.measureText(label).width + 6,
      BAR - 6,
    );
    context.fillStyle = colour("warning");
    context.fillText(
      label,
      (left + right - context.measureText(label).width) / 2,
      LANES.waits + BAR / 2 + 1,
    );
  }
}

function packets(
  context: CanvasRenderingContext2D,
  { marks, times, scale, width }: Picture,
  colour: Colour,
): void {
  const columns = density(times, scale, width);
  const most = Math.max(1, ...columns);
  const bottom = LANES.packets + PACKETS;
  context.fillStyle = colour("primary");
  columns.forEach((count, x) => {
    // The square root, so that one packet is visible beside a thousand.
    const height = Math.max(6, Math.sqrt(count / most) * (PACKETS - 10));
    if (count > 0) context.fillRect(x, bottom - height, 1.5, height);
  });
  context.fillStyle = colour("border");
  context.fillRect(0, bottom, width, 1);
  const last = scale.t(width);
  for (let n = after(times, scale.t(0)); n < marks.length && times[n]! <= last; n += 1)
    mark(context, marks[n]!, scale.x(times[n]!), colour);
}

function mark(
  context: CanvasRenderingContext2D,
  [, , op, type]: Mark,
  x: number,
  colour: Colour,
): void {
  if (op === "DELTA") return;
  const isReset = type?.toLowerCase() === "stream_reset";
  context.fillStyle = colour(
    op === "ERROR" ? "destructive" : op === "CLOSE" ? "foreground" : isReset ? "warning" : "info",
  );
  context.beginPath();
  if (op === "ERROR" || isReset) context.rect(x - 1.5, LANES.packets, 3, PACKETS);
  else context.arc(x, LANES.packets + 4, 3.5, 0, 2 * Math.PI);
  context.fill();
}

function viewers(
  context: CanvasRenderingContext2D,
  { axis, scale }: Picture,
  colour: Colour,
): void {
  axis.viewers.slice(-VIEWERS).forEach(({ from, to, ended }, n) => {
    const y = LANES.viewers + n * VIEWER;
    context.fillStyle = colour(ended === "cut" || ended === "stalled" ? "destructive" : "info");
    context.fillRect(scale.x(from), y, Math.max(2, scale.x(to) - scale.x(from)), 4);
  });
}

function place(
  context: CanvasRenderingContext2D,
  { at, axis, scale }: Picture,
  colour: Colour,
): void {
  if (at === undefined) return;
  context.strokeStyle = colour("foreground");
  context.setLineDash([3, 2]);
  line(context, scale.x(at), 14, scale.x(at), heightOf(axis));
  context.setLineDash([]);
}

function line(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  right: number,
  bottom: number,
): void {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(right, bottom);
  context.stroke();
}
