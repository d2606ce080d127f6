// Cells of codes and agents, turned into rows: what fails most comes first. Pure.
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

/** More would be thinner than can be seen, or hit. */
const MOST = 180;

/**
 * How long a bar is, in milliseconds: a step of the answer, or as many as make bars that can be
 * seen.
 */
export function barLength({
  from,
  to,
  step_seconds,
}: Pick<FaultTable, "from" | "to" | "step_seconds">): number {
  const steps = (Date.parse(to) - Date.parse(from)) / (step_seconds * 1000);
  return step_seconds * 1000 * Math.max(1, Math.ceil(steps / MOST));
}

/** A bar for every stretch of time, also for those in which nothing failed. */
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
