// Telling the user: through sonner by default, or through any `notify` such as shadcn's `toast`.
import type { ReactNode } from "react";
import { toast } from "sonner";

import { type AGUIErrorData, getDisplayMessage, getErrorTitle, getVariant, retryHint } from "../ag-ui-error-codes.js";
import { useSecondsLeft } from "./countdown.js";

/** What shadcn's `toast` takes. */
export interface Notification {
  title: string;
  description: string;
  variant: "default" | "destructive";
}

/** Shows a notification its own way. */
export type Notify = (notification: Notification) => unknown;

/** What a toast of ours shows beside the notification. */
export interface Toasted {
  error: AGUIErrorData;
  /** When a retry may be made, on the clock of `Date.now`; `null` if there is nothing to wait for. */
  deadline: number | null;
  /** Absent if no retry is offered. */
  retry: (() => void) | undefined;
  dismiss: () => void;
}

/** What sonner calls a toast. */
export type ToastId = string | number;

/** The notification of a failure, as text. */
export function notificationOf(error: AGUIErrorData): Notification {
  return { title: getErrorTitle(error), description: getDisplayMessage(error), variant: getVariant(error) };
}

/** Shows a toast with a live countdown and a retry that wakes at zero. */
export function toastError({ error, deadline, retry, dismiss }: Toasted): ToastId {
  const isDestructive = getVariant(error) === "destructive";
  const show = isDestructive ? toast.error : toast;
  return show(<span role={isDestructive ? "alert" : "status"}>{getErrorTitle(error)}</span>, {
    description: <Description error={error} deadline={deadline} />,
    action: retry && <RetryButton deadline={deadline} onRetry={retry} />,
    // A failure stays until it is dealt with: a person may be reading, or waiting for the countdown.
    duration: Number.POSITIVE_INFINITY,
    closeButton: true,
    onDismiss: dismiss,
  });
}

/** Takes the toast away. */
export function dismissToast(id: ToastId | undefined): void {
  if (id !== undefined) toast.dismiss(id);
}

/** The message, and the seconds that are left. */
export function Description({ error, deadline }: { error: AGUIErrorData; deadline: number | null }): ReactNode {
  const left = useSecondsLeft(deadline);
  return (
    <>
      <span>{getDisplayMessage(error, 0)}</span>{" "}
      {/* A timer is not read out each second; whoever wants to know can ask. */}
      {left > 0 && (
        <span role="timer" aria-live="off" data-capstan-countdown={left}>
          {retryHint(left)}
        </span>
      )}
    </>
  );
}

/** A button that sleeps until the deadline. It keeps the focus meanwhile, so that a keyboard need not look for it. */
export function RetryButton({ deadline, onRetry }: { deadline: number | null; onRetry: () => void }): ReactNode {
  const left = useSecondsLeft(deadline);
  const isAsleep = left > 0;
  return (
    <button type="button" data-button="" data-capstan-retry="" aria-disabled={isAsleep} onClick={isAsleep ? undefined : onRetry}>
      {isAsleep ? `Retry in ${left} s` : "Retry"}
    </button>
  );
}
