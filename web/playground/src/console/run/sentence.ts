// The run in one sentence. The gateway writes it, except for a countdown, which needs the page's
// clock.
import type { RunDetails } from "../generated/answers.js";
import { isOver, span } from "../format.js";

export function sentenceOf(detail: RunDetails, now: number): string {
  const { row, attempts, not_before, sentence } = detail;
  if (row.state !== "waiting" || !not_before) return sentence;
  const failed = attempts.at(-1)?.n ?? row.attempts.length;
  const left = Date.parse(not_before) - now;
  const when =
    left > 0
      ? `may begin in ${span(Math.ceil(left / 1000) * 1000).replace(".0 s", " s")}`
      : "may begin: its client has to come back";
  return `Attempt ${failed} failed, attempt ${failed + 1} ${when}.`;
}

/** The heading of the fault panel. A run that continues has not failed. */
export function faultHeading({ row, attempts }: RunDetails): string {
  const failed = attempts.filter(({ fault }) => fault).at(-1)?.n;
  if (row.state === "failed") return "Why it failed";
  if (isOver(row.state))
    return failed === undefined
      ? "What went wrong on the way"
      : `Attempt ${failed} failed, and the run went on`;
  return failed === undefined
    ? "What went wrong so far"
    : `Attempt ${failed} failed, the run continues`;
}
