// Cells of codes and agents, turned into rows: what fails most comes first. Pure.
import type { FaultCell } from "../api/types.js";

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
