// `useAGUIErrorHandler`: shows failures, counts down, and retries.
import { useCallback, useEffect, useRef, useState } from "react";

import {
  type AGUIErrorData,
  AGUIErrorCode,
  ERROR_STATUS,
  isRetryableError,
  parseAGUIError,
  requiresUserAction,
} from "../ag-ui-error-codes.js";
import { secondsUntil, useSecondsLeft } from "./countdown.js";
import { notificationOf, type Notify } from "./notify.js";
import { type Shown, toastError } from "./toast.js";

/**
 * The reactions to failures. All are optional. The latest functions are used, so they need not be
 * stable.
 */
export interface AGUIErrorHandlerOptions {
  /** Shows a failure; by default with sonner. shadcn's `toast` fits. */
  notify?: Notify;
  /** Called for every failure. */
  onError?: (error: AGUIErrorData) => void;
  /** Called for failures after which a retry may help. */
  onRetryableError?: (error: AGUIErrorData) => void;
  /** Called for failures that need an action of the user. */
  onUserActionRequired?: (error: AGUIErrorData) => void;
  /** Retries. Without it no retry is offered. */
  onRetry?: (error: AGUIErrorData) => void;
}

/** The handler and its state. */
export interface AGUIErrorHandler {
  /**
   * Handles a failure in any form: an event, a problem, a thrown error, the argument of
   * CopilotKit's `onError`. Stable.
   */
  handleError: (error: unknown) => void;
  /** The failure that is shown. */
  error: AGUIErrorData | null;
  /** Whole seconds until a retry is possible. */
  secondsLeft: number;
  /** Whether a retry is possible now. */
  canRetry: boolean;
  /** Retries, if that is possible now. Stable. */
  retry: () => void;
  /** Dismisses the failure. Stable. */
  dismiss: () => void;
}

interface Current {
  error: AGUIErrorData;
  deadline: number | null;
}

/** Shows failures of AG-UI and CAP runs. */
export function useAGUIErrorHandler(options: AGUIErrorHandlerOptions = {}): AGUIErrorHandler {
  const [current, setCurrent] = useState<Current | null>(null);
  const latest = useLatest({ options, current });
  const toast = useRef<Shown | undefined>(undefined);
  const secondsLeft = useSecondsLeft(current?.deadline ?? null);

  const dismiss = useCallback(() => {
    setCurrent(null);
    toast.current?.dismiss();
    toast.current = undefined;
  }, []);

  const retry = useCallback(() => {
    const { options, current } = latest.current;
    if (!current || !options.onRetry || secondsUntil(current.deadline) > 0) return;
    dismiss();
    options.onRetry(current.error);
  }, [dismiss, latest]);

  const handleError = useCallback(
    (input: unknown) => {
      const error = parseAGUIError(input) ?? unreadable(input);
      const deadline = error.retry_after ? Date.now() + error.retry_after * 1000 : null;
      const shown = { error, deadline };
      // Set at once and not at the next render, because a retry may come before that.
      latest.current = { ...latest.current, current: shown };
      setCurrent(shown);
      // A new failure replaces the last one, so that toasts do not pile up.
      toast.current?.dismiss();
      toast.current = announce(latest.current.options, shown, retry, () =>
        setCurrent((now) => (now === shown ? null : now)),
      );
    },
    [latest, retry],
  );

  const canRetry =
    current !== null &&
    secondsLeft === 0 &&
    options.onRetry !== undefined &&
    isRetryableError(current.error);
  return { handleError, error: current?.error ?? null, secondsLeft, canRetry, retry, dismiss };
}

function announce(
  options: AGUIErrorHandlerOptions,
  { error, deadline }: Current,
  retry: () => void,
  dismiss: () => void,
): Shown | undefined {
  const isRetryable = isRetryableError(error);
  let toast: Shown | undefined;
  if (options.notify) options.notify(notificationOf(error));
  else
    toast = toastError({
      error,
      deadline,
      dismiss,
      retry: isRetryable && options.onRetry ? retry : undefined,
    });
  options.onError?.(error);
  if (isRetryable) options.onRetryableError?.(error);
  if (requiresUserAction(error)) options.onUserActionRequired?.(error);
  return toast;
}

/** A failure that cannot be parsed is still shown as a failure. */
function unreadable(input: unknown): AGUIErrorData {
  const code = AGUIErrorCode.AGENT_EXECUTION_ERROR;
  return { code, message: typeof input === "string" ? input : "", http_status: ERROR_STATUS[code] };
}

/** A ref to the latest value, so that callbacks stay stable. */
function useLatest<T>(value: T): { current: T } {
  const box = useRef(value);
  useEffect(() => {
    box.current = value;
  });
  return box;
}
