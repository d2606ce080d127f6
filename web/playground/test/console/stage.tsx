// Renders a part of the console alone, with the test's own API and feed.
import { act, type ReactNode } from "react";
import { createRoot } from "react-dom/client";
import { onTestFinished } from "vitest";

import type { Api } from "../../src/console/api/api.js";
import type { Feed } from "../../src/console/api/feed.js";
import type { Me } from "../../src/console/generated/answers.js";
import type { FeedEvent } from "../../src/console/api/feed.js";
import { ConsoleContext } from "../../src/console/context.js";
import { Shelf } from "../../src/console/list/shelf.js";

Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true });

const LOCAL: Me = {
  who: "local",
  name: "local",
  tenants: ["*"],
  may: ["look", "content", "act"],
  content: "shown",
  actions: true,
  version: "1",
  replicas: false,
};

export interface Stage {
  container: HTMLElement;
  /** The visible text. */
  text: () => string;
  find: <T extends HTMLElement = HTMLElement>(selector: string) => T | null;
  tell: (event: FeedEvent) => Promise<void>;
}

interface Given {
  api?: Partial<Api>;
  me?: Partial<Me>;
  at?: string;
}

/** Renders it, and waits for answers that are there at once. */
export async function stage(
  part: ReactNode,
  { api = {}, me = {}, at = "/console" }: Given = {},
): Promise<Stage> {
  history.replaceState(null, "", at);
  const listeners = new Set<(event: FeedEvent) => void>();
  const feed = {
    state: () => "live",
    watch: () => () => {},
    subscribe: (listener: (event: FeedEvent) => void) => (
      listeners.add(listener),
      () => listeners.delete(listener)
    ),
  };
  const container = document.body.appendChild(document.createElement("div"));
  const root = createRoot(container);
  onTestFinished(() => {
    act(() => root.unmount());
    container.remove();
  });
  const shared = {
    api: api as Api,
    me: { ...LOCAL, ...me },
    feed: feed as unknown as Feed,
    shelf: new Shelf(),
  };
  await act(async () => root.render(<ConsoleContext value={shared}>{part}</ConsoleContext>));
  return {
    container,
    text: () => (container.textContent ?? "").replace(/\s+/g, " "),
    find: (selector) => container.querySelector(selector),
    tell: (event) => act(async () => listeners.forEach((listener) => listener(event))),
  };
}

/** Types into a field as React requires: it watches the element's own setter. */
export async function type(field: HTMLInputElement, text: string): Promise<void> {
  await act(async () => {
    Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), "value")!.set!.call(field, text);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
}
