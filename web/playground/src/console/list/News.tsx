// The number of new runs above the list, or why there are none. Screen readers announce it at most
// every five seconds.
import { type ReactNode, useEffect, useState } from "react";

import { Button } from "../../ui/Button.js";
import { useFeedState } from "../context.js";

const ALOUD = 5_000;

interface Props {
  fresh: number;
  /** The list begins in the past. */
  isPast: boolean;
  onShow: () => void;
  onNewest: () => void;
}

export function News({ fresh, isPast, onShow, onNewest }: Props): ReactNode {
  const state = useFeedState();
  const spoken = useSeldom(fresh > 0 ? `${fresh} new` : "", ALOUD);
  return (
    <div className="news">
      <span className="sr-only" aria-live="polite">
        {spoken}
      </span>
      {isPast && (
        <span>
          Paused: this list begins in the past.{" "}
          <Button size="small" onClick={onNewest}>
            To the newest
          </Button>
        </span>
      )}
      {!isPast && fresh > 0 && (
        <Button size="small" look="primary" onClick={onShow}>
          {fresh} new
        </Button>
      )}
      {!isPast && (
        <span className="muted">
          {state === "away"
            ? "Paused: the live feed is not connected."
            : fresh > 0
              ? "Paused while you look."
              : "Live."}
        </span>
      )}
    </div>
  );
}

/** A text that changes at most once per interval. */
function useSeldom(text: string, every: number): string {
  const [announced, setAnnounced] = useState({ text, at: 0 });
  useEffect(() => {
    if (text === announced.text) return;
    const timer = setTimeout(
      () => setAnnounced({ text, at: Date.now() }),
      Math.max(0, announced.at + every - Date.now()),
    );
    return () => clearTimeout(timer);
  }, [text, announced, every]);
  return announced.text;
}
