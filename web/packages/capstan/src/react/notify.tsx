// The message to a user: as text for any `notify` such as shadcn's `toast`, and as live parts of
// our own toast.
import type { ReactNode } from "react";

import {
  type AGUIErrorData,
  getDisplayMessage,
  getErrorTitle,
  getVariant,
  retryHint,
} from "../ag-ui-error-codes.js";
import { useSecondsLeft } from "./countdown.js";

/** The argument of shadcn's `toast`. */
export interface Notification {
  title: string;
  description: string;
  variant: "default" | "destructive";
}

/** Shows a notification. */
export type Notify = (notification: Notification) => unknown;

/** The notification of a failure, as text. */
export function notificationOf(error: AGUIErrorData): Notification {
  return {
    title: getErrorTitle(error),
    description: getDisplayMessage(error),
    variant: getVariant(error),
  };
}

/** The message, and the remaining seconds. */
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
 * A button that is disabled until the deadline. It keeps the focus meanwhile, for keyboard users.
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
