// Cells of codes and agents, turned into rows: what fails most comes first. Pure.
import type { FaultCell, Faults } from "../api/types.js";
import type { Bar } from "../parts/Bars.js";

export interface MatrixRow {
  code: string;
  title: string;
  /** In the order of the agents. */
  cells: readonly (FaultCell | undefined)[];
  all: number;
  fatal: number;
}

export function matrix(cells: readonly FaultCell[]): { rows: readonly MatrixRow[]; agents: readonly string[] } {
  const agents = [...new Set(cells.map(({ agent }) => agent))].sort((a, b) => Number(a === "") - Number(b === "") || a.localeCompare(b));
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

/** More could not be told apart. */
const MOST = 1_440;

/** A bar for every step, also for those in which nothing failed. */
export function barsOf({ from, to, step_seconds, series }: Pick<Faults, "from" | "to" | "step_seconds" | "series">): readonly Bar[] {
  const step = step_seconds * 1000;
  const first = Math.floor(Date.parse(from) / step);
  const length = Math.min(MOST, Math.max(0, Math.ceil(Date.parse(to) / step) - first));
  const found = new Map(series.map(({ at, fatal, healed, refused }) => [Math.floor(Date.parse(at) / step), [fatal, healed, refused]]));
  return Array.from({ length }, (_, n) => ({ at: new Date((first + n) * step).toISOString(), parts: found.get(first + n) ?? [0, 0, 0] }));
}
