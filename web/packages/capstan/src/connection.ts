// One request that may be sent again and again: the same bytes each time, from the cursor on.
import { type Fetch, within } from "./wait.js";

/** How long a response may be silent: four heartbeats of the gateway's. */
const READ_TIMEOUT = 60_000;
/** What a deploy or a proxy answers for the server while a stream is resumed. */
const PASSING_WHILE_RESUMING = [429, 502, 503, 504];

/** Whether a refusal while resuming is only an interruption. */
export function isPassing(status: number): boolean {
  return PASSING_WHILE_RESUMING.includes(status);
}

/** The seconds of a `Retry-After`; dates are not used here. */
export function retryAfter(header: string | null): number | undefined {
  const text = header?.trim() ?? "";
  return /^\d+$/.test(text) ? Number(text) : undefined;
}

export class Connection {
  readonly #fetch: Fetch;
  #body: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #request: AbortController | undefined;

  /** @param fetcher another fetch than the platform's. @param signal the caller's own wish to stop. */
  constructor(
    readonly url: string,
    readonly init: RequestInit,
    readonly signal: AbortSignal | undefined,
    fetcher: Fetch | undefined,
    readonly readTimeout = READ_TIMEOUT,
  ) {
    // Called as a method, the platform's own would complain.
    this.#fetch = fetcher ?? ((url, init) => fetch(url, init));
  }

  get isOpen(): boolean {
    return this.#body !== undefined;
  }

  /** Sends the request; the body is read with {@link read}. */
  async send(lastEventId: string | null): Promise<Response> {
    this.#request = new AbortController();
    const headers = new Headers(this.init.headers);
    if (lastEventId !== null) headers.set("last-event-id", lastEventId);
    const sent = this.#fetch(this.url, { ...this.init, headers, signal: this.#request.signal });
    return within(sent, this.readTimeout, "no answer", this.signal);
  }

  /** Takes over the body of a response. */
  follow(response: Response): void {
    this.#body = response.body?.getReader();
  }

  /** The next bytes; `undefined` at the end. */
  async read(): Promise<Uint8Array | undefined> {
    if (!this.#body) throw new Error("the body is gone");
    return (await within(this.#body.read(), this.readTimeout, "nothing came", this.signal)).value;
  }

  /** Closes what is open. */
  drop(): void {
    this.#body?.cancel().catch(() => {});
    this.#request?.abort();
    this.#body = undefined;
  }
}
