// Turns counts by code and agent into rows, most frequent first. Pure.
import type { FaultCell, FaultTable } from "../generated/answers.js";
import type { Bar } from "../parts/Bars.js";

export interface MatrixRow {
  code: string;
  title: string;
  /** In the order of the agents. */
  cells: readonly (FaultCell | undefined)[];
  all: number;
  fatal: number;
}

export function matrix(cells: readonly FaultCell[]): {
  rows: readonly MatrixRow[];
  agents: readonly string[];
} {
  const agents = [...new Set(cells.map(({ agent }) => agent))].sort(
    (a, b) => Number(a === "") - Number(b === "") || a.localeCompare(b),
  );
  const codes = [...new Set(cells.map(({ code }) => code))];
  const rows = codes.map((code) => {
    const own = cells.filter((cell) => cell.code === code);
    return {
      code,
      title: own[0]?.title ?? "",
      cells: agents.map((agent) => own.find((cell) => cell.agent === agent)),
      all: own.reduce((sum, cell) => sum + cell.fatal + cell.healed + cell.refused, 0),
      fatal: own.reduce((sum, cell) => sum + cell.fatal, 0),
    };
  });
  return { rows: rows.sort((a, b) => b.all - a.all || a.code.localeCompare(b.code)), agents };
}

/** The most bars; more would be too thin to see or select. */
const MOST = 180;

/**
 * The length of a bar in milliseconds: a step of the answer, or several if there would be too many
 * bars.
 */
export function barLength({
  from,
  to,
  step_seconds,
}: Pick<FaultTable, "from" | "to" | "step_seconds">): number {
  const steps = (Date.parse(to) - Date.parse(from)) / (step_seconds * 1000);
  return step_seconds * 1000 * Math.max(1, Math.ceil(steps / MOST));
}

/** One bar for each range of time, also for those without faults. */
export function barsOf(
  found: Pick<FaultTable, "from" | "to" | "step_seconds" | "series">,
): readonly Bar[] {
  const length = barLength(found);
  const [first, end] = [
    Math.floor(Date.parse(found.from) / length),
    Math.ceil(Date.parse(found.to) / length),
  ];
  const bars = Array.from({ length: Math.max(0, end - first) }, (_, n) => ({
    at: new Date((first + n) * length).toISOString(),
    parts: [0, 0, 0],
  }));
  for (const { at, fatal, healed, refused } of found.series) {
    const bar = bars[Math.floor(Date.parse(at) / length) - first];
    if (bar) bar.parts = [fatal, healed, refused].map((more, n) => more + bar.parts[n]!);
  }
  return bars;
}
