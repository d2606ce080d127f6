// A drop-in `fetch` for AG-UI's HttpAgent: its stream survives cuts against any server that sends ids.
//
// The agent sees one response whose body never breaks: whole frames only, each id once. Behind it the same request is
// sent again with `Last-Event-ID` until a terminal event has come.
import { Connection, isPassing, retryAfter } from "./connection.js";
import { clampWait, delay, type HealingOptions, type Policy, policyOf } from "./machine/backoff.js";
import type { Notice } from "./notice.js";
import { Decoder, type Frame, hasData } from "./sse.js";
import { asText, isObject, parseJson } from "./text.js";
import { type Fetch, pause, reason } from "./wait.js";

/** The settings of {@link resumableFetch}. Times are milliseconds. */
export interface ResumableFetchOptions extends HealingOptions {
  /** How long a response may be silent; 60 s. */
  readTimeout?: number;
  /**
   * Whether a request that failed before any event came is sent again; true. Safe where `runId` starts a run at most
   * once, as Capstan does; turn it off for servers that would start a second one.
   */
  retryFirst?: boolean;
  /** Another fetch than the platform's. */
  fetch?: Fetch;
  /** Called with what happens between events. */
  onNotice?: (notice: Notice) => void;
}

const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];

/** A `fetch` for `new HttpAgent({ url, fetch: resumableFetch() })`. */
export function resumableFetch(options: ResumableFetchOptions = {}): Fetch {
  return (url, init) => new Exchange(url, init, options).open();
}

/** One request and all of its resumptions. */
class Exchange {
  readonly #connection: Connection;
  readonly #policy: Policy;
  readonly #encoder = new TextEncoder();
  readonly #seen = new Set<string>();
  #decoder = new Decoder();
  #cursor: string | null = null;
  /** The server's wish for reconnections, in milliseconds. */
  #retry = 0;
  #retries = 0;
  /** The agent has seen an event. */
  #hasBegun = false;
  #isOver = false;

  constructor(url: string, init: RequestInit, readonly options: ResumableFetchOptions) {
    this.#connection = new Connection(url, init, init.signal ?? undefined, options.fetch, options.readTimeout);
    this.#policy = policyOf(options);
  }

  /** The first answer. What is no event stream is handed over as it is. */
  async open(): Promise<Response> {
    const response = await this.#first();
    if (!response.ok || !response.body || !isEventStream(response)) return response;
    this.#follow(response);
    const body = new ReadableStream<Uint8Array>({
      pull: (controller) => this.#pull(controller),
      cancel: () => this.#connection.drop(),
    });
    return new Response(body, { status: response.status, statusText: response.statusText, headers: response.headers });
  }

  async #first(): Promise<Response> {
    for (;;) {
      try {
        return await this.#send();
      } catch (error) {
        if (this.options.retryFirst === false) throw error;
        await this.#wait(error).catch((final: unknown) => Promise.reject(bare(final)));
      }
    }
  }

  #send(): Promise<Response> {
    this.#tell({ type: "connecting", cursor: this.#cursor });
    return this.#connection.send(this.#cursor);
  }

  #follow(response: Response): void {
    this.#tell(this.#cursor === null ? { type: "connected" } : { type: "resumed", cursor: this.#cursor });
    this.#decoder = new Decoder();
    this.#connection.follow(response);
  }

  /** Gives the agent the next frame, however many connections it takes. */
  async #pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    try {
      for (;;) {
        const frame = this.#next();
        if (frame) return controller.enqueue(this.#encoder.encode(`${frame.lines.join("\n")}\n\n`));
        if (this.#isOver) break;
        await this.#advance();
      }
      controller.close();
    } catch (error) {
      controller.error(bare(error));
    }
    this.#connection.drop();
  }

  /** The next frame that has not come before. */
  #next(): Frame | undefined {
    while (!this.#isOver) {
      const frame = this.#decoder.takeAny();
      if (!frame) break;
      const { id } = frame;
      // An id alone moves the cursor; agents need not see it.
      this.#cursor = id || this.#cursor;
      if (!hasData(frame) || this.#isRepeat(id)) continue;
      this.#retries = 0;
      this.#hasBegun = true;
      this.#isOver = isTerminal(frame);
      return frame;
    }
    return undefined;
  }

  #isRepeat(id: string | undefined): boolean {
    if (id === undefined) return false;
    const isRepeat = this.#seen.has(id);
    this.#seen.add(id);
    if (isRepeat) this.#tell({ type: "duplicate", seq: this.#seen.size });
    return isRepeat;
  }

  /** Reads on, or comes back after a cut. */
  async #advance(): Promise<void> {
    try {
      if (!this.#connection.isOpen) return await this.#resume();
      const bytes = await this.#connection.read();
      if (bytes) this.#decoder.push(bytes);
      else await this.#lost(new Error("the stream ended without a terminal event"), true);
    } catch (error) {
      if (error instanceof Final) throw error;
      await this.#lost(error, false);
    }
  }

  async #lost(error: unknown, wasClean: boolean): Promise<void> {
    this.#connection.drop();
    this.#retry = this.#decoder.retry ?? this.#retry;
    if (this.#cursor !== null || (!this.#hasBegun && this.options.retryFirst !== false)) return this.#wait(error);
    // A server without ids gives no place to resume at: what its client would have seen happens.
    if (!wasClean) throw new Final(error);
    this.#isOver = true;
  }

  async #resume(): Promise<void> {
    const response = await this.#send();
    const { status } = response;
    if (isPassing(status)) {
      this.#retry = (retryAfter(response.headers.get("retry-after")) ?? 0) * 1000 || this.#retry;
      if (this.#retry <= this.#policy.maxWait) throw new Error(`status ${status}`);
    }
    if (!response.ok || !response.body) throw new Final(new Error(`the stream cannot be resumed: status ${status}`));
    this.#follow(response);
  }

  async #wait(error: unknown): Promise<void> {
    const { signal } = this.#connection;
    if (signal?.aborted) throw new Final(signal.reason);
    if (this.#retries >= this.#policy.maxRetries) throw new Final(error);
    const floor = this.#retry && clampWait(this.#policy, this.#retry);
    const wait = Math.max(delay(this.#policy.backoff, this.#retries, Math.random), floor);
    this.#retries += 1;
    this.#tell({ type: "retrying", wait, because: reason(error) });
    await pause(wait, signal);
  }

  #tell(notice: Notice): void {
    this.options.onNotice?.(notice);
  }
}

/** A failure that no retry mends. */
class Final extends Error {
  constructor(override readonly cause: unknown) {
    super();
  }
}

function bare(error: unknown): unknown {
  return error instanceof Final ? error.cause : error;
}

function isEventStream(response: Response): boolean {
  return /^text\/event-stream\b/i.test(response.headers.get("content-type") ?? "");
}

function isTerminal(frame: Frame): boolean {
  const event = parseJson(frame.data);
  return isObject(event) && TERMINAL.includes(asText(event["type"]) ?? "");
}
