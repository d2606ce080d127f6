// The client for browsers and Node. It has the same state machine and the same names as the Rust
// client, over fetch.
import { checkHeaders, checkOptions } from "./arguments.js";
import { ChatStream } from "./chat.js";
import { Connection, retryAfter } from "./connection.js";
import { CAPConnectionError, CAPError, CAPProtocolError, late, refusal } from "./errors.js";
import { STREAM_RESET } from "./event.js";
import type {
  HealthCheckResponse,
  ServiceRequest,
  ServiceResponse,
  UserContext,
} from "./generated/wire.js";
import {
  delay,
  type HealingOptions,
  type Policy,
  policyOf,
  type Profile,
} from "./machine/backoff.js";
import { describeNotice, type Notice } from "./notice.js";
import {
  answering,
  type Envelope,
  newId,
  question,
  questionV2,
  type ResumeEntry,
  user,
} from "./request.js";
import { PacketStream } from "./stream.js";
import { isObject, parseJson } from "./text.js";
import { type Fetch, pause, PROBLEM_BYTES, readUpTo, reason, within } from "./wait.js";

/** A run in JSON mode is silent until its end, and a gateway lets it work for an hour. */
const ASK_TIMEOUT = 3_600_000;
/** The largest answer in JSON mode, in bytes. */
const ANSWER_BYTES = 64 * 1024 * 1024;

/** The settings of a {@link CapClient}. Times are milliseconds. */
export interface Options extends HealingOptions {
  /**
   * The timeout for a silent response, and for the whole of `stop` and `health`; 60 s, four
   * heartbeats of the gateway.
   */
  readTimeout?: number;
  /** The timeout of `ask`, including retries and waits; 1 h. */
  askTimeout?: number;
  /** Missing packets are an error instead of a notice. */
  strict?: boolean;
  /** The profile of `chat` and `attach`; v1. */
  profile?: Profile;
  /** The user in `chat`. */
  user?: UserContext;
  /** Headers to send with every request. */
  headers?: Record<string, string>;
  /** The path of requests, below the base URL; `/assist`. */
  path?: string;
  /** A fetch in place of the platform's. */
  fetch?: Fetch;
  /** Called for events between packets: retries, resumes, repeats, warnings. */
  onNotice?: (notice: Notice) => void;
  /** Receives the text of each WARNING; by default the console. */
  warn?: (message: string) => void;
}

/** The options of a single call. */
export interface CallOptions {
  /** Ends the call, not the run. `stop` ends a run. */
  signal?: AbortSignal | undefined;
  /**
   * For `assist`: resume after this cursor of the same request's stream, for example after a
   * transient failure.
   */
  lastEventId?: string | undefined;
  /** Called in addition to the client's own listener. */
  onNotice?: ((notice: Notice) => void) | undefined;
}

/** A client of one server. */
export class CapClient {
  readonly #base: URL;
  readonly #headers: Record<string, string>;
  readonly #options: Options;
  readonly #policy: Policy;

  /**
   * @param apiKey sent as a bearer key; an empty one is not sent. Throws a `TypeError` that names
   * an invalid argument.
   */
  constructor(baseUrl: string, apiKey = "", options: Options = {}) {
    this.#base = parseBase(baseUrl);
    checkOptions(options);
    this.#options = options;
    this.#headers = { ...options.headers, ...(apiKey && { authorization: `Bearer ${apiKey}` }) };
    checkHeaders(this.#headers);
    this.#policy = {
      ...policyOf(options),
      isStrict: options.strict ?? false,
      profile: options.profile ?? "v1",
    };
  }

  /**
   * Starts a run, or attaches to the run of its key. Returns its packets, resumed after cuts.
   * Nothing is sent before the first `next`.
   */
  assist(request: Envelope, call: CallOptions = {}): PacketStream {
    const policy = { ...this.#policy, profile: profileOf(request) };
    return this.#stream(
      this.#url(this.#path()),
      this.#post(request, "text/event-stream"),
      policy,
      call.lastEventId ?? null,
      call,
    );
  }

  /** Sends a message in a new conversation. Returns the text of the answer. */
  chat(message: string, call: CallOptions = {}): ChatStream {
    return this.chatIn(newId(), message, call);
  }

  /** Sends a message in a conversation. */
  chatIn(conversation: string, message: string, call: CallOptions = {}): ChatStream {
    return new ChatStream(this.assist(this.question(conversation, message), call), conversation);
  }

  /** The request that {@link chatIn} sends. */
  question(conversation: string, message: string): Envelope {
    const sender = this.#options.user ?? user("anonymous");
    return this.#policy.profile === "v1"
      ? question(conversation, message, sender)
      : questionV2(conversation, message, sender);
  }

  /** The request that answers the questions of a conversation's last run. */
  answers(conversation: string, resume: readonly ResumeEntry[]): Envelope {
    return answering(this.question(conversation, ""), resume);
  }

  /** Follows an existing stream from a cursor. A viewer neither starts nor continues a run. */
  attach(cursor: string, call: CallOptions = {}): PacketStream {
    const query = this.#policy.profile === "v2" ? "?profile=v2" : "";
    const url = this.#streamUrl(cursor.split(":")[0] ?? "") + query;
    const init = { headers: { ...this.#headers, accept: "text/event-stream" } };
    return this.#stream(url, init, { ...this.#policy, isViewer: true }, cursor, call);
  }

  /** Stops a run. Resolves when its end is in the journal. A finished run does not change. */
  async stop(streamId: string, call: CallOptions = {}): Promise<void> {
    await this.#exchange(
      this.#streamUrl(streamId),
      { method: "DELETE", headers: this.#headers },
      call,
    );
  }

  /** The health of the server. */
  async health(call: CallOptions = {}): Promise<HealthCheckResponse> {
    return (await this.#exchange(
      this.#url("/health"),
      { headers: this.#headers },
      call,
    )) as HealthCheckResponse;
  }

  /**
   * The whole answer in one object. The key makes retries safe, so lost connections are retried.
   */
  async ask(request: Envelope, call: CallOptions = {}): Promise<ServiceResponse> {
    const connection = this.#connection(
      this.#url(this.#path()),
      this.#post(request, "application/json"),
      call,
    );
    const limit = this.#options.askTimeout ?? ASK_TIMEOUT;
    const end = performance.now() + Math.min(limit, this.#policy.deadline ?? limit);
    for (let retries = 0; ; retries += 1) {
      try {
        return (await this.#inTime(connection, limit, end)) as ServiceResponse;
      } catch (error) {
        if (!(error instanceof CAPConnectionError)) throw error;
        const left = end - performance.now();
        if (retries >= this.#policy.maxRetries || left <= 0)
          throw new CAPConnectionError(error.why, retries, error);
        await pause(Math.min(delay(this.#policy.backoff, retries, Math.random), left), call.signal);
      }
    }
  }

  #stream(
    url: string,
    init: RequestInit,
    policy: Policy,
    lastEventId: string | null,
    call: CallOptions,
  ): PacketStream {
    const notify = (notice: Notice) => {
      if (notice.type === "warning") this.#warn(describeNotice(notice));
      this.#options.onNotice?.(notice);
      call.onNotice?.(notice);
    };
    return new PacketStream(this.#connection(url, init, call), policy, lastEventId, notify);
  }

  #connection(url: string, init: RequestInit, { signal }: CallOptions): Connection {
    return new Connection(url, init, signal, this.#options.fetch, this.#options.readTimeout);
  }

  #post(request: Envelope, accept: string): RequestInit {
    const headers = {
      ...this.#headers,
      accept,
      "content-type": "application/json",
      "x-cap-accept": STREAM_RESET,
      "x-request-id": request.request_id,
    };
    // Serialised once: the server compares the bytes of repeats.
    return { method: "POST", headers, body: JSON.stringify(request) };
  }

  #path(): string {
    return this.#options.path ?? "/assist";
  }

  #url(path: string): string {
    const url = new URL(this.#base);
    url.pathname = `${url.pathname.replace(/\/+$/, "")}/${path.replace(/^\/+/, "")}`;
    return url.href;
  }

  #streamUrl(stream: string): string {
    const version = /\/v1\/*$/.test(this.#base.pathname) ? "" : "/v1";
    return this.#url(`${version}/streams/${encodeURIComponent(stream)}`);
  }

  /** One request and its whole response, within the silence timeout. */
  #exchange(url: string, init: RequestInit, call: CallOptions): Promise<unknown> {
    const connection = this.#connection(url, init, call);
    const limit = connection.readTimeout;
    return this.#inTime(
      connection,
      limit,
      performance.now() + Math.min(limit, this.#policy.deadline ?? limit),
    );
  }

  /** `end` is the limit of this call, or the deadline of all calls if that is earlier. */
  async #inTime(connection: Connection, limit: number, end: number): Promise<unknown> {
    try {
      return await within(
        answer(connection),
        end - performance.now(),
        "no answer",
        connection.signal,
      );
    } catch (error) {
      connection.drop();
      if (connection.signal?.aborted) throw connection.signal.reason;
      if (error instanceof CAPConnectionError) throw error.at(connection.address);
      if (error instanceof CAPError) throw error;
      const { deadline = Number.POSITIVE_INFINITY } = this.#policy;
      throw (
        deadline <= limit
          ? late(deadline, 0)
          : new CAPConnectionError(`no answer within ${limit / 1000} s`, 0)
      ).at(connection.address);
    }
  }

  #warn(message: string): void {
    if (this.#options.warn) this.#options.warn(message);
    else console.warn(message);
  }
}

/** One request and its whole response. */
async function answer(connection: Connection): Promise<unknown> {
  const response = await connection.send(null, Number.POSITIVE_INFINITY).catch(lost);
  const { status, headers } = response;
  const body = await readUpTo(response, status >= 400 ? PROBLEM_BYTES : ANSWER_BYTES).catch(lost);
  if (status >= 400) throw refusal(status, body, retryAfter(headers.get("retry-after")));
  const value = parseJson(body);
  if (value === undefined) throw new CAPProtocolError("document: not JSON");
  return value;
}

function lost(error: unknown): never {
  throw error instanceof CAPError
    ? error
    : new CAPConnectionError(reason(error), 0, { cause: error });
}

/** The profile of a request: a payload within the payload is v1, a query in its place is v2. */
function profileOf(request: Envelope): Profile {
  return isObject((request as ServiceRequest).payload.payload) ? "v1" : "v2";
}

function parseBase(baseUrl: string): URL {
  const url = URL.canParse(baseUrl) ? new URL(baseUrl) : undefined;
  // No fetch accepts them, and each repeats them in its error.
  if (url?.username || url?.password)
    throw new CAPConnectionError(
      "base URL: a user or a password in it is not sent; the key is an argument of its own",
      0,
    );
  if (url && /^https?:$/.test(url.protocol)) return url;
  throw new CAPConnectionError(
    `base URL ${JSON.stringify(baseUrl)}: expected http://host:port or https://host`,
    0,
  );
}
