// A transport for `useChat` that resumes after the last chunk, and not from the start.
//
// The chat sees one stream without a break. After a cut, the transport requests the rest by GET
// with `Last-Event-ID`, until it has received `[DONE]`.
import { isPassing, retryAfter } from "../connection.js";
import { CAPConnectionError, CAPError, refusal } from "../errors.js";
import type { StreamError } from "../generated/wire.js";
import {
  clampWait,
  delay,
  type HealingOptions,
  type Policy,
  policyOf,
} from "../machine/backoff.js";
import type { Notice } from "../notice.js";
import { Decoder } from "../sse.js";
import { type Fetch, pause, PROBLEM_BYTES, readUpTo, reason, within } from "../wait.js";

/** A chunk of a UI message. The AI SDK's `UIMessageChunk` has all types. */
export type Chunk = any;

type Given<T> = T | (() => T | Promise<T>);

/** The settings of {@link CapstanChatTransport}. Times are milliseconds. */
export interface ChatTransportOptions extends HealingOptions {
  /** The URL for chats: `/v1/ai-sdk/chat`, or that of an agent. */
  api: string;
  headers?: Given<Record<string, string> | Headers>;
  /** Members of each request besides the chat's own, for example `tools`. */
  body?: Given<object>;
  credentials?: RequestCredentials;
  /** The timeout for a silent response; 60 s. */
  readTimeout?: number;
  /** A fetch in place of the platform's. */
  fetch?: Fetch;
  /** Called for events between chunks. `retrying` has the wait, for a countdown. */
  onNotice?: (notice: Notice) => void;
  /** Called with the typed fault of a run, before the chat shows its text. */
  onFault?: (fault: StreamError) => void;
}

interface RequestOptions {
  headers?: Record<string, string> | Headers | undefined;
  body?: object | undefined;
  abortSignal?: AbortSignal | undefined;
}

const READ_TIMEOUT = 60_000;
const PROBLEM = "application/problem+json";
const DONE = "[DONE]";

/** `useChat({ transport: new CapstanChatTransport({ api: "/v1/ai-sdk/chat" }), resume: true })`. */
export class CapstanChatTransport {
  /** A chat that reconnects gets its message from the start. */
  readonly resumeStreamIsReplay = true;
  readonly #options: ChatTransportOptions;

  constructor(options: ChatTransportOptions) {
    this.#options = options;
  }

  /** Posts the chat, and returns its answer. */
  sendMessages = async ({
    chatId,
    messages,
    trigger,
    messageId,
    ...more
  }: RequestOptions & {
    chatId: string;
    messages: unknown[];
    trigger: string;
    messageId: string | undefined;
  }): Promise<ReadableStream<Chunk>> => {
    const own = await given(this.#options.body);
    const body = JSON.stringify({ ...own, ...more.body, id: chatId, messages, trigger, messageId });
    const answer = new Answer(
      this.#options,
      this.#streamOf(chatId),
      await this.#headers(more),
      more.abortSignal,
    );
    return (await answer.open({ url: this.#options.api, method: "POST", body })) ?? empty();
  };

  /** The newest answer of the chat; null if there is none to resume. */
  reconnectToStream = async ({
    chatId,
    ...more
  }: RequestOptions & { chatId: string }): Promise<ReadableStream<Chunk> | null> => {
    const url = this.#streamOf(chatId);
    return new Answer(this.#options, url, await this.#headers(more), more.abortSignal).open({
      url,
      method: "GET",
    });
  };

  /** Stops the run, for every tab. The chat's own `stop()` only closes the connection. */
  async stopRun(chatId: string): Promise<void> {
    const { fetch = globalThis.fetch.bind(globalThis), credentials } = this.#options;
    const init = {
      method: "DELETE",
      headers: await this.#headers({}),
      ...(credentials && { credentials }),
    };
    const response = await fetch(this.#streamOf(chatId), init);
    if (!response.ok) throw await refused(response);
  }

  #streamOf(chatId: string): string {
    const [path, query] = this.#options.api.split("?", 2);
    const stream = `${path?.replace(/\/$/, "")}/${encodeURIComponent(chatId)}/stream`;
    return query ? `${stream}?${query}` : stream;
  }

  async #headers({ headers }: RequestOptions): Promise<Headers> {
    const all = new Headers({ accept: `text/event-stream, ${PROBLEM}` });
    new Headers(await given(this.#options.headers)).forEach((value, name) => all.set(name, value));
    new Headers(headers).forEach((value, name) => all.set(name, value));
    return all;
  }
}

interface RequestParts {
  url: string;
  method: string;
  body?: string;
}

/** One answer, over any number of connections. */
class Answer {
  readonly #policy: Policy;
  #decoder = new Decoder();
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #cursor: string | undefined;
  /** Chunks before the first cursor. After a cut among them, the answer begins again. */
  #held: Chunk[] = [];
  #due: Chunk[] = [];
  /** Cuts since the last chunk. */
  #retries = 0;
  #isOver = false;

  constructor(
    readonly options: ChatTransportOptions,
    readonly url: string,
    readonly headers: Headers,
    readonly signal: AbortSignal | undefined,
  ) {
    this.#policy = policyOf(options);
  }

  /** Null if there is nothing to read. Throws a typed error if the first request is refused. */
  async open(request: RequestParts): Promise<ReadableStream<Chunk> | null> {
    const response = await this.#send(request);
    if (response.status === 204) return null;
    if (!response.ok || !response.body) throw await refused(response);
    this.#follow(response);
    return new ReadableStream<Chunk>({
      pull: (controller) => this.#pull(controller),
      cancel: () => this.#drop(),
    });
  }

  #send({ url, method, body }: RequestParts): Promise<Response> {
    const { fetch = globalThis.fetch.bind(globalThis), credentials } = this.options;
    const headers = new Headers(this.headers);
    if (body !== undefined) headers.set("content-type", "application/json");
    if (this.#cursor !== undefined) headers.set("last-event-id", this.#cursor);
    this.options.onNotice?.({ type: "connecting", cursor: this.#cursor ?? null });
    const init = {
      method,
      headers,
      ...(body !== undefined && { body }),
      ...(credentials && { credentials }),
      ...(this.signal && { signal: this.signal }),
    };
    return within(fetch(url, init), this.#silence, "no answer", this.signal);
  }

  get #silence(): number {
    return this.options.readTimeout ?? READ_TIMEOUT;
  }

  #follow(response: Response): void {
    this.options.onNotice?.(
      this.#cursor === undefined
        ? { type: "connected" }
        : { type: "resumed", cursor: this.#cursor },
    );
    [this.#decoder, this.#held] = [new Decoder(), []];
    this.#reader = response.body?.getReader();
  }

  async #pull(controller: ReadableStreamDefaultController<Chunk>): Promise<void> {
    try {
      for (;;) {
        const chunk = this.#due.shift();
        if (chunk !== undefined) return controller.enqueue(chunk);
        if (this.#isOver) return controller.close();
        await this.#advance();
      }
    } catch (error) {
      controller.error(error);
    } finally {
      if (this.#isOver) this.#drop();
    }
  }

  async #advance(): Promise<void> {
    try {
      if (!this.#reader) return await this.#resume();
      const { done, value } = await within(
        this.#reader.read(),
        this.#silence,
        "nothing came",
        this.signal,
      );
      if (done) throw new Error("the stream ended before the answer did");
      this.#decoder.push(value);
      for (let frame = this.#decoder.take(); frame; frame = this.#decoder.take())
        this.#take(frame.data, frame.id);
    } catch (error) {
      this.#drop();
      if (this.signal?.aborted) throw this.signal.reason;
      if (error instanceof CAPError) throw error;
      await this.#wait(error);
    }
  }

  #take(data: string, id: string | undefined): void {
    if (this.#isOver) return;
    if (data === DONE) {
      this.#isOver = true;
      this.#release();
      return;
    }
    const chunk: Chunk = JSON.parse(data);
    if (chunk.type === "data-capstan-error") this.options.onFault?.(chunk.data);
    if (chunk.type === "data-capstan-attempt")
      this.options.onNotice?.({ type: "attempt_failed", error: chunk.data });
    this.#held.push(chunk);
    if (id) this.#cursor = id;
    if (this.#cursor !== undefined) this.#release();
  }

  #release(): void {
    this.#retries = 0;
    this.#due.push(...this.#held.splice(0));
  }

  async #resume(): Promise<void> {
    const response = await this.#send({ url: this.url, method: "GET" });
    if (isPassing(response.status))
      throw new Wait(
        `status ${response.status}`,
        (retryAfter(response.headers.get("retry-after")) ?? 0) * 1000,
      );
    if (response.status === 204)
      throw new CAPConnectionError("the answer is gone", this.#retries, { address: this.url });
    if (!response.ok || !response.body) throw await refused(response);
    this.#follow(response);
  }

  async #wait(error: unknown): Promise<void> {
    const serverWait = error instanceof Wait ? error.wait : 0;
    if (this.#retries >= this.#policy.maxRetries || serverWait > this.#policy.maxWait) {
      throw new CAPConnectionError(reason(error), this.#retries, {
        cause: error,
        address: this.url,
      });
    }
    const wait = Math.max(
      delay(this.#policy.backoff, this.#retries, Math.random),
      serverWait && clampWait(this.#policy, serverWait),
    );
    this.#retries += 1;
    this.options.onNotice?.({ type: "retrying", wait, because: reason(error) });
    await pause(wait, this.signal);
  }

  #drop(): void {
    const reader = this.#reader;
    this.#reader = undefined;
    reader?.cancel().catch(() => {});
  }
}

/** A refusal with a wait, in milliseconds. */
class Wait extends Error {
  constructor(
    message: string,
    readonly wait: number,
  ) {
    super(message);
  }
}

async function refused(response: Response): Promise<CAPError> {
  const body = await readUpTo(response, PROBLEM_BYTES).catch(() => "");
  return refusal(response.status, body, retryAfter(response.headers.get("retry-after")));
}

async function given<T>(value: Given<T> | undefined): Promise<T | undefined> {
  return typeof value === "function" ? await (value as () => T | Promise<T>)() : value;
}

function empty(): ReadableStream<Chunk> {
  return new ReadableStream({ start: (controller) => controller.close() });
}
