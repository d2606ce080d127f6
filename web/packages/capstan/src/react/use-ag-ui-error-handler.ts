// `useAGUIErrorHandler`: shows failures, counts down, and retries when it is time.
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
 * What to do about failures. All of it is optional; the latest functions are used, so that they
 * need not be stable.
 */
export interface AGUIErrorHandlerOptions {
  /** Shows a failure; sonner's toasts by default. shadcn's `toast` fits as it is. */
  notify?: Notify;
  /** Every failure. */
  onError?: (error: AGUIErrorData) => void;
  /** Failures that may pass. */
  onRetryableError?: (error: AGUIErrorData) => void;
  /** Failures that the user has to do something about. */
  onUserActionRequired?: (error: AGUIErrorData) => void;
  /** Tries again. Without it no retry is offered. */
  onRetry?: (error: AGUIErrorData) => void;
}

/** The handler and where it stands. */
export interface AGUIErrorHandler {
  /**
   * Takes a failure in any spelling: an event, a problem, a thrown error, CopilotKit's `onError`
   * argument. Stable.
   */
  handleError: (error: unknown) => void;
  /** The failure that is shown. */
  error: AGUIErrorData | null;
  /** Whole seconds until a retry may be made. */
  secondsLeft: number;
  /** Whether a retry may be made now. */
  canRetry: boolean;
  /** Tries again, if it is time. Stable. */
  retry: () => void;
  /** Puts the failure away. Stable. */
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
      // Known at once, not at the next render: a retry may be asked for before it.
      latest.current = { ...latest.current, current: shown };
      setCurrent(shown);
      // The next failure takes the place of the last one: they do not pile up.
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

/** A failure that cannot be parsed is still a failure. */
function unreadable(input: unknown): AGUIErrorData {
  const code = AGUIErrorCode.AGENT_EXECUTION_ERROR;
  return { code, message: typeof input === "string" ? input : "", http_status: ERROR_STATUS[code] };
}

/** A box with the latest value, so that callbacks can stay the same. */
function useLatest<T>(value: T): { current: T } {
  const box = useRef(value);
  useEffect(() => {
    box.current = value;
  });
  return box;
}
