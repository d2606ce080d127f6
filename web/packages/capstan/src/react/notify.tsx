// The message for a user, as text for any `notify` such as shadcn's `toast`, and as the parts of a
// toast that live.
import type { ReactNode } from "react";

import {
  type AGUIErrorData,
  getDisplayMessage,
  getErrorTitle,
  getVariant,
  retryHint,
} from "../ag-ui-error-codes.js";
import { useSecondsLeft } from "./countdown.js";

/** What shadcn's `toast` takes. */
export interface Notification {
  title: string;
  description: string;
  variant: "default" | "destructive";
}

/** Shows a notification its own way. */
export type Notify = (notification: Notification) => unknown;

/** The notification of a failure, as text. */
export function notificationOf(error: AGUIErrorData): Notification {
  return {
    title: getErrorTitle(error),
    description: getDisplayMessage(error),
    variant: getVariant(error),
  };
}

/** The message, and the seconds that are left. */
export function Description({
  error,
  deadline,
}: {
  error: AGUIErrorData;
  deadline: number | null;
}): ReactNode {
  const left = useSecondsLeft(deadline);
  return (
    <>
      <span>{getDisplayMessage(error, 0)}</span>{" "}
      {/* A screen reader reads the timer on request, not each second. */}
      {left > 0 && (
        <span role="timer" aria-live="off" data-capstan-countdown={left}>
          {retryHint(left)}
        </span>
      )}
    </>
  );
}

/**
 * A button that sleeps until the deadline, which the description counts down to. It keeps the
 * focus meanwhile, so that a keyboard need not look for it.
 */
export function RetryButton({
  deadline,
  onRetry,
}: {
  deadline: number | null;
  onRetry: () => void;
}): ReactNode {
  const isAsleep = useSecondsLeft(deadline) > 0;
  return (
    <button
      type="button"
      data-button=""
      data-capstan-retry=""
      aria-disabled={isAsleep}
      onClick={isAsleep ? undefined : onRetry}
    >
      Retry
    </button>
  );
}
