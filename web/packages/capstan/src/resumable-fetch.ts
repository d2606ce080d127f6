// A drop-in `fetch` for AG-UI's HttpAgent. Its stream survives cuts, with any server that sends
// ids.
//
// The agent sees one response that never breaks, with complete frames and each id once. After a
// cut, the same request is sent again with `Last-Event-ID`, until a terminal event has come. If the
// server shut down in mid-run, for example for a deploy, the run waits for its client: that counts
// as a cut.
import { checkHeaders, checkOptions } from "./arguments.js";
import { Connection, isPassing, retryAfter } from "./connection.js";
import { parseCursor } from "./cursor.js";
import { CAPConnectionError, CAPError, late } from "./errors.js";
import { clampWait, delay, type HealingOptions, type Policy, policyOf } from "./machine/backoff.js";
import type { Notice } from "./notice.js";
import { parseAGUIError } from "./parse-error.js";
import { Repeats } from "./repeats.js";
import { Decoder, type Frame, hasData } from "./sse.js";
import { asText, isObject, parseJson } from "./text.js";
import { type Fetch, pause, PROBLEM_BYTES, readUpTo, reason, within } from "./wait.js";

/** The settings of {@link resumableFetch}. Times are milliseconds. */
export interface ResumableFetchOptions extends HealingOptions {
  /** The timeout for a silent response; 60 s. */
  readTimeout?: number;
  /**
   * Whether a request that failed before its first event is sent again; true. That is safe where
   * `runId` starts a run at most once, as in Capstan. Turn it off for servers that would start a
   * second run.
   */
  retryFirst?: boolean;
  /** A fetch in place of the platform's. */
  fetch?: Fetch;
  /** Called for events between frames. */
  onNotice?: (notice: Notice) => void;
}

/** The code of a run whose server shut down. */
const INTERRUPTED = "run_interrupted";

/**
 * A `fetch` for `new HttpAgent({ url, fetch: resumableFetch() })`. A `Last-Event-ID` among the
 * headers is the start.
 */
export function resumableFetch(options: ResumableFetchOptions = {}): Fetch {
  checkOptions(options);
  return async (url, init = {}) => new Exchange(url, init, options).open();
}

/** One request and its resumptions. */
class Exchange {
  readonly #connection: Connection;
  readonly #policy: Policy;
  readonly #encoder = new TextEncoder();
  readonly #repeats: Repeats;
  #decoder = new Decoder();
  #cursor: string | null;
  /** The reconnection time that the server asked for, in milliseconds. */
  #retry = 0;
  /** Cuts since the last new event. */
  #retries = 0;
  /** How often the server interrupted the run. */
  #interruptions = 0;
  /** Events that the agent has seen. */
  #count = 0;
  readonly #beganAt = performance.now();
  #isOver = false;

  constructor(
    url: string,
    init: RequestInit,
    readonly options: ResumableFetchOptions,
  ) {
    checkHeaders(init.headers);
    this.#connection = new Connection(
      url,
      init,
      init.signal ?? undefined,
      options.fetch,
      options.readTimeout,
    );
    this.#policy = policyOf(options);
    this.#cursor = new Headers(init.headers).get("last-event-id");
    this.#repeats = new Repeats(this.#cursor ?? undefined);
  }

  /**
   * The first response. A response that is no event stream is returned unchanged, a refusal up to a
   * size.
   */
  async open(): Promise<Response> {
    const response = await this.#first();
    if (!response.ok) return this.#refusal(response);
    if (!response.body || !isEventStream(response)) return response;
    this.#follow(response);
    const body = new ReadableStream<Uint8Array>({
      pull: (controller) => this.#pull(controller),
      cancel: () => this.#connection.drop(),
    });
    return new Response(body, {
      status: response.status,
      statusText: response.statusText,
      headers: response.headers,
    });
  }

  async #first(): Promise<Response> {
    for (;;) {
      try {
        return await this.#send();
      } catch (error) {
        if (this.options.retryFirst === false) throw this.#failure(error);
        await this.#wait(error).catch((final: unknown) => Promise.reject(bare(final)));
      }
    }
  }

  async #refusal(response: Response): Promise<Response> {
    const { status, statusText, headers } = response;
    const read = within(
      readUpTo(response, PROBLEM_BYTES),
      this.#connection.readTimeout,
      "no answer",
      this.#connection.signal,
    );
    return new Response((await read.catch(() => "")) || null, { status, statusText, headers });
  }

  #send(): Promise<Response> {
    this.#tell({ type: "connecting", cursor: this.#cursor });
    return this.#connection.send(this.#cursor, this.#patience());
  }

  #follow(response: Response): void {
    this.#tell(
      this.#cursor === null ? { type: "connected" } : { type: "resumed", cursor: this.#cursor },
    );
    this.#decoder = new Decoder();
    this.#repeats.open();
    this.#connection.follow(response);
  }

  /** Gives the agent the next frame, over any number of connections. */
  async #pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    try {
      for (;;) {
        const frame = await this.#next();
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

  /** The next new frame. */
  async #next(): Promise<Frame | undefined> {
    while (!this.#isOver) {
      const frame = this.#decoder.takeAny();
      if (!frame) break;
      const type = hasData(frame) ? typeOf(frame) : undefined;
      const cut =
        type === "RUN_ERROR" && frame.id ? this.#interruption(frame.data, frame.id) : undefined;
      if (cut) {
        await this.#lost(cut, false);
        break;
      }
      // A frame with only an id moves the cursor. Agents need not see it.
      this.#cursor = frame.id || this.#cursor;
      if (type === undefined) continue;
      this.#isOver = type === "RUN_FINISHED" || type === "RUN_ERROR";
      if (this.#repeats.has(frame.id) && !this.#isOver) {
        this.#tell({ type: "duplicate", seq: this.#count });
        continue;
      }
      this.#retries = 0;
      this.#count += 1;
      return frame;
    }
    return undefined;
  }

  /**
   * Whether an error ends only an attempt, and the run waits. A repeated request then continues the
   * run at the agent's cursor, and the agent does not see the error. The agent sees it if it
   * already has other events of the same end, if it comes too often, or if its wait is too long.
   */
  #interruption(data: string, id: string): Cut | undefined {
    const error = parseAGUIError(data);
    if (error?.kind !== INTERRUPTED || error.severity !== "TRANSIENT") return undefined;
    const wait = (error.retry_after ?? 0) * 1000;
    const isBegun = parseCursor(id)?.seq === parseCursor(this.#repeats.last ?? "")?.seq;
    if (isBegun || wait > this.#policy.maxWait || this.#interruptions >= this.#policy.maxRetries)
      return undefined;
    this.#interruptions += 1;
    return new Cut(`${error.severity} ${INTERRUPTED}: ${error.message}`, wait);
  }

  /** Reads more, or resumes after a cut. */
  async #advance(): Promise<void> {
    try {
      if (!this.#connection.isOpen) return await this.#resume();
      const bytes = await this.#connection.read(this.#patience());
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
    if (this.#cursor !== null || (this.#count === 0 && this.options.retryFirst !== false))
      return this.#wait(error);
    // Without ids a stream cannot be resumed, so the agent sees the failure.
    if (!wasClean) throw new Final(this.#failure(error));
    this.#isOver = true;
  }

  async #resume(): Promise<void> {
    const response = await this.#send();
    const { status } = response;
    if (isPassing(status)) {
      const wait = (retryAfter(response.headers.get("retry-after")) ?? 0) * 1000;
      if (wait <= this.#policy.maxWait) throw new Cut(`status ${status}`, wait);
    }
    if (!response.ok || !response.body)
      throw new Final(new Error(`the stream cannot be resumed: status ${status}`));
    this.#follow(response);
  }

  async #wait(error: unknown): Promise<void> {
    const { signal } = this.#connection;
    if (signal?.aborted || error instanceof CAPError || this.#retries >= this.#policy.maxRetries)
      throw new Final(this.#failure(error));
    const left = this.#left();
    if (left <= 0)
      throw new Final(late(this.#policy.deadline ?? 0, this.#retries).at(this.#connection.address));
    const floor = Math.max(this.#retry, error instanceof Cut ? error.wait : 0);
    const wait = Math.max(
      delay(this.#policy.backoff, this.#retries, Math.random),
      floor && clampWait(this.#policy, floor),
    );
    this.#retries += 1;
    this.#tell({ type: "retrying", wait, because: reason(error) });
    await pause(Math.min(wait, left), signal).catch((error: unknown) =>
      Promise.reject(new Final(error)),
    );
  }

  /** The time until the deadline. */
  #left(): number {
    return this.#beganAt + (this.#policy.deadline ?? Number.POSITIVE_INFINITY) - performance.now();
  }

  /** The timeout for silence: at most until the deadline. */
  #patience(): number {
    return Math.min(this.#connection.readTimeout, this.#left());
  }

  /** The error for the agent: its own abort unchanged, or a lost connection with the address. */
  #failure(error: unknown): unknown {
    const { signal, address } = this.#connection;
    if (signal?.aborted) return signal.reason;
    return error instanceof CAPError
      ? error
      : new CAPConnectionError(reason(error), this.#retries, { cause: error, address });
  }

  #tell(notice: Notice): void {
    this.options.onNotice?.(notice);
  }
}

/** An interruption with a wait of the server, in milliseconds. */
class Cut extends Error {
  constructor(
    message: string,
    readonly wait: number,
  ) {
    super(message);
  }
}

/** A failure that no retry fixes. */
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

/** The type of an event; empty if it has none. */
function typeOf(frame: Frame): string {
  const event = parseJson(frame.data);
  return (isObject(event) && asText(event["type"])) || "";
}
