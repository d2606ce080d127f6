// The context of every view: the API with its key, the visitor, and the feed.
import { createContext, useContext, useEffect, useRef, useSyncExternalStore } from "react";

import type { Api } from "./api/api.js";
import type { Feed, FeedState } from "./api/feed.js";
import type { Me } from "./generated/answers.js";
import type { FeedEvent } from "./api/feed.js";
import type { Shelf } from "./list/shelf.js";
import { useSeldom } from "./use-query.js";

export interface Console {
  api: Api;
  me: Me;
  feed: Feed;
  /** Lists that were open before, for going back and for walking through them. */
  shelf: Shelf;
}

export const ConsoleContext = createContext<Console | null>(null);

export function useConsole(): Console {
  const found = useContext(ConsoleContext);
  if (!found) throw new Error("a view outside of the console");
  return found;
}

/** Calls the listener with each event of the feed. */
export function useFeed(listener: (event: FeedEvent) => void): void {
  const { feed } = useConsole();
  const latest = useRef(listener);
  useEffect(() => {
    latest.current = listener;
  });
  useEffect(() => {
    const leave = feed.subscribe((event) => latest.current(event));
    return () => leave();
  }, [feed]);
}

/**
 * Calls `again` after events of the feed, at most once per interval. Without events it makes no
 * requests.
 */
export function useNews(again: () => void, every: number): void {
  const soon = useSeldom(again, every);
  useFeed(({ type }) => type !== "state" && soon());
}

export function useFeedState(): FeedState {
  const { feed } = useConsole();
  return useSyncExternalStore(feed.watch, feed.state);
}

/** Whether the visitor may see runs of several tenants. */
export function seesSeveral({ who, tenants }: Me): boolean {
  return who === "operator" && (tenants.length > 1 || tenants.includes("*"));
}
