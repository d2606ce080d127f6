// Our own toasts, through sonner. sonner is loaded with the first toast, so a page with its own
// `notify` does not need it.
import { type AGUIErrorData, getErrorTitle, getVariant } from "../ag-ui-error-codes.js";
import { Description, RetryButton } from "./notify.js";

/** The content of a toast. */
export interface Toasted {
  error: AGUIErrorData;
  /** When a retry is possible, on the clock of `Date.now`; `null` for no wait. */
  deadline: number | null;
  /** Absent if no retry is offered. */
  retry: (() => void) | undefined;
  /** Called when the user dismisses it. */
  dismiss: () => void;
}

/** A toast that is shown or is being loaded. */
export interface Shown {
  dismiss: () => void;
}

type Sonner = typeof import("sonner");

/** Shows a toast with a live countdown and a retry button that is enabled at zero. */
export function toastError(toasted: Toasted): Shown {
  let isGone = false;
  let takeAway = () => {};
  void load().then((sonner) => {
    if (!sonner || isGone) return;
    const id = show(sonner, toasted);
    takeAway = () => sonner.toast.dismiss(id);
  });
  return {
    dismiss: () => {
      isGone = true;
      takeAway();
    },
  };
}

/** In a `try`, so that bundlers allow it to be missing. */
async function load(): Promise<Sonner | undefined> {
  try {
    return await import("sonner");
  } catch (error) {
    console.error(
      "capstan/react: no toast could be shown; install sonner, or pass `notify`",
      error,
    );
    return undefined;
  }
}

function show({ toast }: Sonner, { error, deadline, retry, dismiss }: Toasted): string | number {
  const isDestructive = getVariant(error) === "destructive";
  const show = isDestructive ? toast.error : toast;
  return show(<span role={isDestructive ? "alert" : "status"}>{getErrorTitle(error)}</span>, {
    description: <Description error={error} deadline={deadline} />,
    action: retry && <RetryButton deadline={deadline} onRetry={retry} />,
    // A failure stays until the user dismisses it, because the user may be reading or waiting.
    duration: Number.POSITIVE_INFINITY,
    closeButton: true,
    onDismiss: dismiss,
  });
}
