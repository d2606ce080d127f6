// Whether the screen is as narrow as a phone's. The stylesheet has the same width.
import { useSyncExternalStore } from "react";

const NARROW = "(max-width: 760px)";

function subscribe(listener: () => void): () => void {
  const media = matchMedia(NARROW);
  media.addEventListener("change", listener);
  return () => media.removeEventListener("change", listener);
}

export function useNarrow(): boolean {
  return useSyncExternalStore(subscribe, () => matchMedia(NARROW).matches);
}
