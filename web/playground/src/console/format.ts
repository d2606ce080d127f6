// Numbers and times as short text. Pure: the caller passes the time.
import type { RunDetails, RunRow, RunStatus } from "./generated/answers.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A duration: `850 ms`, `14.2 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`. */
export function span(ms: number): string {
  const rest = Math.max(0, ms);
  if (rest < SECOND) return `${Math.round(rest)} ms`;
  if (rest < MINUTE) return `${(Math.floor(rest / 100) / 10).toFixed(1)} s`;
  if (rest < HOUR) return two(rest, MINUTE, "min", SECOND, "s");
  return rest < DAY ? two(rest, HOUR, "h", MINUTE, "min") : two(rest, DAY, "d", HOUR, "h");
}

/** A short duration: `0.5 ms`, `14 ms`. */
export function latency(ms: number): string {
  return ms < 10 ? `${ms.toFixed(1)} ms` : span(ms);
}

function two(ms: number, large: number, name: string, small: number, less: string): string {
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${name}${rest > 0 ? ` ${rest} ${less}` : ""}`;
}

/** The time since a moment, in its largest unit. */
export function age(at: string, now: number): string {
  const ms = Math.max(0, now - Date.parse(at));
  if (Number.isNaN(ms)) return "–";
  for (const [unit, name] of [
    [DAY, "d"],
    [HOUR, "h"],
    [MINUTE, "min"],
  ] as const)
    if (ms >= unit) return `${Math.floor(ms / unit)} ${name}`;
  return `${Math.floor(ms / SECOND)} s`;
}

/** A time of day, with the date unless it is today. */
export function clock(at: string, now: number, locale?: string): string {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return "–";
  const { ofDay, ofTime } = formatsOf(locale);
  const isToday = time.toDateString() === new Date(now).toDateString();
  return `${isToday ? "" : `${ofDay.format(time)}, `}${ofTime.format(time)}`;
}

/**
 * Formatters are cached: a scrolled list needs hundreds of formats, and creating a formatter costs
 * more than the rest of a row.
 */
const formats = new Map<
  string | undefined,
  { ofDay: Intl.DateTimeFormat; ofTime: Intl.DateTimeFormat }
>();

function formatsOf(locale: string | undefined) {
  let known = formats.get(locale);
  if (!known) {
    known = {
      ofDay: new Intl.DateTimeFormat(locale, { day: "numeric", month: "short" }),
      ofTime: new Intl.DateTimeFormat(locale, {
        hour: "2-digit",
        minute: "2-digit",
        second: "2-digit",
        hour12: false,
      }),
    };
    formats.set(locale, known);
  }
  return known;
}

export function bytes(count: number): string {
  if (count < 1000) return `${count} B`;
  for (const [unit, name] of [
    [1e9, "GB"],
    [1e6, "MB"],
  ] as const)
    if (count >= unit) return `${short(count / unit)} ${name}`;
  return `${short(count / 1000)} kB`;
}

function short(number: number): string {
  return number < 10 ? number.toFixed(1) : Math.round(number).toString();
}

/** `12,345`. */
export function count(number: number): string {
  return Math.round(number)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ",");
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** The first and the last digits of an id, because ids of similar times begin alike. */
export function brief(id: string): string {
  return id.length > 14 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}

/** The duration of a run, up to now if it is open. */
export function durationOf(row: RunRow, now: number): number {
  return isOver(row.state)
    ? row.duration_ms
    : Math.max(row.duration_ms, now - Date.parse(row.created_at));
}

export function isOver(state: RunStatus): boolean {
  return state !== "running" && state !== "waiting";
}

/** «12 in, 40 out»: the provider's token counts. */
export function tokens(usage: RunDetails["usage"]): string | undefined {
  if (!usage) return undefined;
  const parts = Object.entries(usage).flatMap(([name, value]) =>
    typeof value === "number"
      ? [`${count(value)} ${name.replace(/_?tokens$/, "").replaceAll("_", " ")}`]
      : [],
  );
  return parts.length === 0 ? undefined : parts.join(", ");
}
