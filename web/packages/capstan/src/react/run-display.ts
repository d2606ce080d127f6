// Updates React with the state of a run: at most once per frame, and with "retrying" during a wait.
import type { Notice } from "../notice.js";
import type { CapStreamAnswer, CapStreamState } from "./use-cap-stream.js";

/** Milliseconds, about one frame of a screen. */
const FRAME = 16;

export class RunDisplay {
  #signal: AbortSignal | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #wait: { because: string; until: number } | undefined;

  constructor(
    readonly setState: (state: CapStreamState) => void,
    readonly answer: () => CapStreamAnswer,
  ) {}

  /** Shows a call until it finishes or `signal` aborts it. */
  begin(signal: AbortSignal): void {
    this.#signal = signal;
    this.#wait = undefined;
    this.#show();
  }

  notice(notice: Notice): void {
    if (notice.type === "retrying")
      this.#wait = { because: notice.because, until: Date.now() + notice.wait };
    if (notice.type === "connected" || notice.type === "resumed") this.#wait = undefined;
    this.soon();
  }

  /** Packets may be faster than the screen, so all packets of one frame are shown together. */
  soon(): void {
    this.#timer ??= setTimeout(() => this.#show(), FRAME);
  }

  close(reason: string): void {
    this.#finish({ status: "closed", reason, ...this.answer() });
  }

  fail(error: unknown): void {
    this.#finish({ status: "failed", error, ...this.answer() });
  }

  #show(): void {
    this.#timer = undefined;
    if (this.#signal?.aborted) return;
    const answer = this.answer();
    this.setState(
      this.#wait
        ? { status: "retrying", ...this.#wait, ...answer }
        : { status: "streaming", ...answer },
    );
  }

  #finish(state: CapStreamState): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.setState(state);
  }
}
