// The address bar is the state. Forty lines in place of a library: the history API, one event, one
// component.
import {
  type AnchorHTMLAttributes,
  type MouseEvent,
  type ReactNode,
  useSyncExternalStore,
} from "react";

const CHANGED = "capstan:navigated";

/**
 * Goes to an address of this page. `replace` adds no history entry. `state` is stored in the
 * history entry.
 */
export function navigate(
  href: string,
  { replace = false, state = null }: { replace?: boolean; state?: unknown } = {},
): void {
  if (replace) history.replaceState(state ?? history.state, "", href);
  else history.pushState(state, "", href);
  dispatchEvent(new Event(CHANGED));
}

function subscribe(listener: () => void): () => void {
  addEventListener(CHANGED, listener);
  addEventListener("popstate", listener);
  return () => {
    removeEventListener(CHANGED, listener);
    removeEventListener("popstate", listener);
  };
}

/** The present path and query. */
export function useAddress(): { path: string; search: string } {
  const path = useSyncExternalStore(subscribe, () => location.pathname);
  const search = useSyncExternalStore(subscribe, () => location.search);
  return { path, search };
}

interface Props extends AnchorHTMLAttributes<HTMLAnchorElement> {
  href: string;
  state?: unknown;
  children: ReactNode;
}

/** A real link, so that new tabs, copied addresses and the middle button work. */
export function Link({ href, state, onClick, ...rest }: Props): ReactNode {
  const follow = (event: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(event);
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    )
      return;
    event.preventDefault();
    navigate(href, { state });
  };
  return <a href={href} onClick={follow} {...rest} />;
}
