// The gateway's live events: one connection for the whole page, over fetch because it needs a key.
// It is closed while the tab is hidden. After a gap, listeners are told to load their data again.
import { Decoder } from "capstan";

import type { Health, Refusal, RunNews } from "../generated/answers.js";

/** The waits before retries, in milliseconds. The last one repeats. */
const WAITS = [1_000, 2_000, 5_000, 15_000];

export type FeedState = "live" | "away";
/** An event of the feed. */
export type FeedEvent =
  | ({ type: "run" } & RunNews)
  | { type: "refused"; refusal: Refusal }
  | { type: "state"; health: Partial<Health> }
  | { type: "lagged" };

type Listener = (event: FeedEvent) => void;

export class Feed {
  readonly #listeners = new Set<Listener>();
  readonly #watchers = new Set<() => void>();
  #state: FeedState = "away";
  #left: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #tries = 0;
  #wasLive = false;

  constructor(readonly open: (signal: AbortSignal) => Promise<Response>) {}

  readonly state = (): FeedState => this.#state;

  readonly watch = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  };

  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  start(): void {
    if (this.#left) return;
    const left = new AbortController();
    this.#left = left;
    this.#read(left.signal)
      .catch(() => {})
      .finally(() => {
        if (left.signal.aborted) return;
        this.stop();
        this.#timer = setTimeout(
          () => this.start(),
          WAITS[Math.min(this.#tries, WAITS.length - 1)],
        );
        this.#tries += 1;
      });
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#left?.abort();
    this.#left = undefined;
    this.#turn("away");
  }

  async #read(signal: AbortSignal): Promise<void> {
    const response = await this.open(signal);
    this.#tries = 0;
    this.#turn("live");
    // Events of the meantime were missed.
    if (this.#wasLive) this.#tell({ type: "lagged" });
    this.#wasLive = true;
    const decoder = new Decoder();
    const reader = response.body!.getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      decoder.push(piece.value);
      for (let frame = decoder.take(); frame; frame = decoder.take()) {
        const event = eventOf(frame.event, frame.data);
        if (event) this.#tell(event);
      }
    }
  }

  #tell(event: FeedEvent): void {
    for (const listener of this.#listeners) listener(event);
  }

  #turn(state: FeedState): void {
    if (state === this.#state) return;
    this.#state = state;
    for (const watcher of this.#watchers) watcher();
  }
}

/** Parses an event; undefined for a type of a later version. */
export function eventOf(name: string, data: string): FeedEvent | undefined {
  switch (name) {
    case "run": {
      const { what, run } = JSON.parse(data) as RunNews;
      return { type: "run", what, run };
    }
    case "refused":
      return { type: "refused", refusal: JSON.parse(data) as Refusal };
    case "state":
      return { type: "state", health: JSON.parse(data) as Partial<Health> };
    case "lagged":
      return { type: "lagged" };
    default:
      return undefined;
  }
}
