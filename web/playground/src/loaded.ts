// A part of the page that is loaded when it is first needed.
import { useSyncExternalStore } from "react";

export interface Loaded<T> {
  /** Loads the part once. After a failure, the next call tries again. */
  load: () => Promise<void>;
  /** The part; undefined until it is loaded. */
  use: () => T | undefined;
}

export function loaded<T>(open: () => Promise<T>): Loaded<T> {
  const listeners = new Set<() => void>();
  let part: T | undefined;
  let loading: Promise<void> | undefined;
  const load = () =>
    (loading ??= open().then(
      (found) => {
        part = found;
        for (const listener of listeners) listener();
      },
      () => {
        loading = undefined;
      },
    ));
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    void load();
    return () => void listeners.delete(listener);
  };
  const view = () => part;
  return { load, use: () => useSyncExternalStore(subscribe, view, view) };
}
