// The events of the connection, for the timeline and the list of frames. A store outside React,
// which updates React once per frame.
import { useSyncExternalStore } from "react";

/** One mark on the timeline. */
export interface Mark {
  kind: "delta" | "event" | "error" | "close" | "cut" | "retry" | "resume" | "repeat" | "connect";
  /** Milliseconds since the run began. */
  at: number;
  label: string;
}

export interface LogView {
  marks: readonly Mark[];
  frames: readonly string[];
  counts: Readonly<Record<Mark["kind"], number>>;
  /** The gateway that answered last, if there are several. */
  servedBy: string;
}

/** The most marks, so that a long run does not fill the tab's memory. */
const MARKS = 2000;
const FRAMES = 500;
/** The longest label, because a message can be of any length. */
const LABEL = 200;

const NONE: LogView["counts"] = {
  delta: 0,
  event: 0,
  error: 0,
  close: 0,
  cut: 0,
  retry: 0,
  resume: 0,
  repeat: 0,
  connect: 0,
};
const EMPTY: LogView = { marks: [], frames: [], counts: NONE, servedBy: "" };

export class Log {
  #view = EMPTY;
  #marks: Mark[] = [];
  #frames: string[] = [];
  #counts = { ...NONE };
  #servedBy = "";
  #began = performance.now();
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #listeners = new Set<() => void>();

  begin(): void {
    this.#marks = [];
    this.#frames = [];
    this.#counts = { ...NONE };
    this.#began = performance.now();
    this.#tell();
  }

  mark(kind: Mark["kind"], label: string): void {
    this.#counts[kind] += 1;
    this.#marks.push({ kind, label: label.slice(0, LABEL), at: performance.now() - this.#began });
    if (this.#marks.length > MARKS) this.#marks.splice(0, this.#marks.length - MARKS);
    this.#tell();
  }

  frame(lines: readonly string[]): void {
    this.#frames.push(lines.join("\n"));
    if (this.#frames.length > FRAMES) this.#frames.splice(0, this.#frames.length - FRAMES);
    this.#tell();
  }

  served(by: string): void {
    this.#servedBy = by.slice(0, LABEL);
    this.#tell();
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  readonly view = (): LogView => this.#view;

  #tell(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#view = {
        marks: [...this.#marks],
        frames: [...this.#frames],
        counts: { ...this.#counts },
        servedBy: this.#servedBy,
      };
      for (const listener of this.#listeners) listener();
    }, 30);
  }
}

export function useLog(log: Log): LogView {
  return useSyncExternalStore(log.subscribe, log.view);
}
