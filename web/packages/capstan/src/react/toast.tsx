// Toasts of ours, through sonner. It is loaded with the first one: a page with a `notify` of its
// own needs no sonner.
import { type AGUIErrorData, getErrorTitle, getVariant } from "../ag-ui-error-codes.js";
import { Description, RetryButton } from "./notify.js";

/** What a toast shows. */
export interface Toasted {
  error: AGUIErrorData;
  /**
   * When a retry may be made, on the clock of `Date.now`; `null` if there is nothing to wait for.
   */
  deadline: number | null;
  /** Absent if no retry is offered. */
  retry: (() => void) | undefined;
  /** Called when a person puts it away. */
  dismiss: () => void;
}

/** A toast that is shown, or about to be. */
export interface Shown {
  dismiss: () => void;
}

type Sonner = typeof import("sonner");

/** Shows a toast with a live countdown and a retry that wakes at zero. */
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

/** In a `try`: bundlers then let it be missing. */
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
    // A failure stays until it is dealt with: a person may be reading, or waiting for the
    // countdown.
    duration: Number.POSITIVE_INFINITY,
    closeButton: true,
    onDismiss: dismiss,
  });
}
