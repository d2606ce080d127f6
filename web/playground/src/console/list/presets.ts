// Presets of filters.
import type { Filters } from "../url.js";

export interface Preset {
  name: string;
  filters: Partial<Filters>;
}

export function presets(now: number): readonly Preset[] {
  const since = startOfDay(now);
  return [
    { name: "Running", filters: { state: "running" } },
    { name: "Waiting", filters: { state: "waiting" } },
    { name: "Failed today", filters: { state: "failed", since } },
    { name: "Healed today", filters: { state: "healed", since } },
  ];
}

/** Midnight in the browser's time zone. */
function startOfDay(now: number): string {
  const day = new Date(now);
  day.setHours(0, 0, 0, 0);
  return day.toISOString();
}
