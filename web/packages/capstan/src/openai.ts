// A drop-in `fetch` for npm `openai`. A streamed answer of a Capstan gateway survives cuts without
// an effect on the SDK.
//
// The SDK sees one response that never breaks: complete frames, with the same bytes as an unbroken
// response. After a cut, a response is resumed by `starting_after`. A chat has no position to
// resume at, so it is posted again under its `Idempotency-Key`, and frames that the SDK has are
// skipped.
import { isPassing, retryAfter } from "./connection.js";
import { clampWait, delay, type HealingOptions, type Policy, policyOf } from "./machine/backoff.js";
import type { Notice } from "./notice.js";
import { newId } from "./request.js";
import { asText, isObject, parseJson } from "./text.js";
import { pause, reason, within } from "./wait.js";

/**
 * The part of fetch that is needed. The platform's fetch fits, and so does the type of the SDK's
 * option.
 */
export type OpenAIFetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

/** The settings of {@link resumableFetch}. Times are milliseconds. */
export interface OpenAIFetchOptions extends HealingOptions {
  /** The timeout for a silent response; 60 s. */
  readTimeout?: number;
  /** A fetch in place of the platform's. */
  fetch?: OpenAIFetch;
  /**
   * Called for events between frames. `retrying` has the wait. A cursor is a `sequence_number`, or
   * the number of skipped chunks.
   */
  onNotice?: (notice: Notice) => void;
}

const KEY = "idempotency-key";
const LAST = new Set(["response.completed", "response.incomplete", "response.failed"]);

/** A `fetch` for `new OpenAI({ baseURL, fetch: resumableFetch() })`. */
export function resumableFetch(options: OpenAIFetchOptions = {}): OpenAIFetch {
  const send = options.fetch ?? ((input, init) => fetch(input, init));
  const spare = new SpareKeys();
  return async (input, init = {}) => {
    const url = input instanceof Request ? input.url : String(input);
    const kind = input instanceof Request ? undefined : kindOf(url, init.method ?? "GET");
    if (!kind) return send(input, init);
    return new Exchange(url, init, kind, { ...options, fetch: send }, spare).open();
  };
}

type Kind = "chat" | "responses" | "reading";

/** The kind of a request, if its answer can be resumed. */
function kindOf(url: string, method: string): Kind | undefined {
  const { pathname, searchParams } = new URL(url, "http://here");
  if (method.toUpperCase() === "POST") {
    if (pathname.endsWith("/chat/completions")) return "chat";
    return pathname.endsWith("/responses") ? "responses" : undefined;
  }
  return /\/responses\/[^/]+$/.test(pathname) && searchParams.get("stream") === "true"
    ? "reading"
    : undefined;
}

/**
 * The keys of failed requests by their content. The SDK sends such a request again, and the repeat
 * must not start another run.
 */
class SpareKeys {
  readonly #keys = new Map<string, string[]>();

  give(content: string, key: string): void {
    this.#keys.set(content, [...(this.#keys.get(content) ?? []), key]);
    // Limits the memory for requests that are never repeated.
    for (const oldest of this.#keys.keys()) if (this.#keys.size > 256) this.#keys.delete(oldest);
  }

  take(content: string): string | undefined {
    const [key, ...rest] = this.#keys.get(content) ?? [];
    if (rest.length > 0) this.#keys.set(content, rest);
    else this.#keys.delete(content);
    return key;
  }
}

/** One request and its resumptions. */
class Exchange {
  readonly #headers: Headers;
  readonly #policy: Policy;
  readonly #content: string;
  readonly #encoder = new TextEncoder();
  #decoder = new TextDecoder();
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #buffer = "";
  /** The number of frames that the SDK has, and of those that a repeated chat still has to skip. */
  #handed = 0;
  #skip = 0;
  /** For a response: its id, and the number of the last event that the SDK has. */
  #id: string | undefined;
  #number: number | undefined;
  /** Cuts since the last new frame. */
  #retries = 0;
  #isOver = false;

  constructor(
    readonly url: string,
    readonly init: RequestInit,
    readonly kind: Kind,
    readonly options: OpenAIFetchOptions & { fetch: OpenAIFetch },
    readonly spare: SpareKeys,
  ) {
    this.#headers = new Headers(init.headers);
    this.#policy = policyOf(options);
    this.#content = `${url}\n${typeof init.body === "string" ? init.body : ""}`;
    if (kind !== "reading" && !this.#headers.has(KEY)) {
      const isRepeat = Number(this.#headers.get("x-stainless-retry-count") ?? 0) > 0;
      this.#headers.set(KEY, (isRepeat && spare.take(this.#content)) || newId());
    }
    if (kind === "reading") this.#readFrom(url);
  }

  /** The first response. A response that is no event stream is returned unchanged. */
  async open(): Promise<Response> {
    let response: Response;
    try {
      response = await this.#send(this.url, this.init);
    } catch (error) {
      this.#giveUp();
      throw error;
    }
    const isStream = /^text\/event-stream\b/i.test(response.headers.get("content-type") ?? "");
    if (!response.ok || !response.body || !isStream) {
      if (!response.ok) this.#giveUp();
      return response;
    }
    this.#tell({ type: "connected" });
    this.#follow(response);
    const body = new ReadableStream<Uint8Array>({
      pull: (controller) => this.#pull(controller),
      cancel: () => this.#drop(),
    });
    return new Response(body, {
      status: response.status,
      statusText: response.statusText,
      headers: response.headers,
    });
  }

  #send(url: string, init: RequestInit): Promise<Response> {
    return this.options.fetch(url, { ...init, headers: this.#headers });
  }

  /** Keeps the key, because the SDK may repeat the request. */
  #giveUp(): void {
    const key = this.#headers.get(KEY);
    if (key) this.spare.give(this.#content, key);
  }

  #readFrom(url: string): void {
    const { pathname, searchParams } = new URL(url, "http://here");
    this.#id = pathname.split("/").at(-1);
    const after = searchParams.get("starting_after");
    this.#number = after === null ? undefined : Number(after);
  }

  #follow(response: Response): void {
    [this.#buffer, this.#decoder, this.#reader] = [
      "",
      new TextDecoder(),
      response.body?.getReader(),
    ];
  }

  async #pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    try {
      for (;;) {
        const frame = this.#next();
        if (frame !== undefined) return controller.enqueue(this.#encoder.encode(frame));
        if (this.#isOver) return controller.close();
        await this.#advance();
      }
    } catch (error) {
      this.#drop();
      controller.error(error);
    }
  }

  /** The next frame that the SDK does not have. */
  #next(): string | undefined {
    for (let end; !this.#isOver && (end = this.#buffer.indexOf("\n\n")) >= 0;) {
      const lines = this.#buffer
        .slice(0, end)
        .split("\n")
        .filter((line) => !line.startsWith(":"));
      this.#buffer = this.#buffer.slice(end + 2);
      const data = lines.find((line) => line.startsWith("data: "))?.slice("data: ".length);
      if (data === undefined) continue;
      if (this.#isKnown(data)) {
        this.#tell({ type: "duplicate", seq: this.#handed });
        continue;
      }
      this.#retries = 0;
      this.#handed += 1;
      return `${lines.join("\n")}\n\n`;
    }
    return undefined;
  }

  #isKnown(data: string): boolean {
    if (this.kind === "chat") {
      if (this.#skip > 0) {
        this.#skip -= 1;
        return true;
      }
      this.#isOver = data === "[DONE]";
      return false;
    }
    const event = parseJson(data);
    if (!isObject(event)) return false;
    const number = event["sequence_number"];
    if (typeof number === "number") {
      if (this.#number !== undefined && number <= this.#number) return true;
      this.#number = number;
    }
    const response = event["response"];
    if (isObject(response)) this.#id ??= asText(response["id"]) || undefined;
    this.#isOver = LAST.has(asText(event["type"]) ?? "");
    return false;
  }

  /** Reads more, or resumes after a cut. */
  async #advance(): Promise<void> {
    const { signal, readTimeout } = {
      signal: this.init.signal ?? undefined,
      readTimeout: this.options.readTimeout ?? 60_000,
    };
    try {
      if (!this.#reader) return await this.#resume();
      const { done, value } = await within(
        this.#reader.read(),
        readTimeout,
        "no event came",
        signal,
      );
      if (done) throw new Error("the stream ended before its last event");
      this.#buffer += this.#decoder.decode(value, { stream: true });
    } catch (error) {
      this.#drop();
      if (signal?.aborted || error instanceof Final || this.#retries >= this.#policy.maxRetries)
        throw error instanceof Final ? error.cause : error;
      const backoff = delay(this.#policy.backoff, this.#retries, Math.random);
      const wait = Math.max(
        backoff,
        error instanceof Busy ? clampWait(this.#policy, error.wait) : 0,
      );
      this.#retries += 1;
      this.#tell({ type: "retrying", wait, because: reason(error) });
      await pause(wait, signal);
    }
  }

  async #resume(): Promise<void> {
    const response = await this.#again();
    if (isPassing(response.status))
      throw new Busy(
        response.status,
        (retryAfter(response.headers.get("retry-after")) ?? 0) * 1000,
      );
    if (!response.ok || !response.body)
      throw new Final(new Error(`the answer cannot be read on: status ${response.status}`));
    this.#tell({ type: "resumed", cursor: String(this.#number ?? this.#handed) });
    this.#follow(response);
  }

  #tell(notice: Notice): void {
    this.options.onNotice?.(notice);
  }

  #again(): Promise<Response> {
    // A response has no id before its first event.
    if (this.kind === "chat" || this.#id === undefined) {
      this.#skip = this.#handed;
      return this.#send(this.url, this.init);
    }
    const base = this.kind === "reading" ? this.url.split("?")[0] : `${this.url}/${this.#id}`;
    const after = this.#number === undefined ? "" : `&starting_after=${this.#number}`;
    const { body: _, ...init } = this.init;
    return this.#send(`${base}?stream=true${after}`, { ...init, method: "GET" });
  }

  #drop(): void {
    this.#reader?.cancel().catch(() => {});
    this.#reader = undefined;
  }
}

/** A refusal with a wait. */
class Busy extends Error {
  constructor(
    status: number,
    readonly wait: number,
  ) {
    super(`status ${status}`);
  }
}

/** A failure that no retry fixes. */
class Final extends Error {
  constructor(override readonly cause: unknown) {
    super();
  }
}
