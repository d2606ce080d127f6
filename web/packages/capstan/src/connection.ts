// A request that may be sent several times: with the same bytes, from the cursor, to one server
// only.
import { redirected } from "./errors.js";
import { type Fetch, within } from "./wait.js";

/** The timeout for a silent response: four heartbeats of the gateway. */
const READ_TIMEOUT = 60_000;
/** Statuses that deploys and proxies send while a stream is resumed. */
const PASSING_WHILE_RESUMING = [429, 502, 503, 504];
/** The most redirects; more are a loop. */
const MAX_REDIRECTS = 10;

/** Whether a refusal while resuming counts as an interruption. */
export function isPassing(status: number): boolean {
  return PASSING_WHILE_RESUMING.includes(status);
}

/** The seconds of a `Retry-After`. Dates are not supported. */
export function retryAfter(header: string | null): number | undefined {
  const text = header?.trim() ?? "";
  return /^\d+$/.test(text) ? Number(text) : undefined;
}

export class Connection {
  /** The absolute URL, even if it was given relative to a page. */
  readonly url: string;
  readonly #fetch: Fetch;
  #body: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #request: AbortController | undefined;

  /**
   * @param fetcher a fetch in place of the platform's.
   * @param signal the caller's abort signal.
   */
  constructor(
    url: string,
    readonly init: RequestInit,
    readonly signal: AbortSignal | undefined,
    fetcher: Fetch | undefined,
    readonly readTimeout: number = READ_TIMEOUT,
  ) {
    const page = globalThis.location?.href;
    this.url = URL.canParse(url, page) ? new URL(url, page).href : url;
    // The platform's fetch fails if it is called as a method.
    this.#fetch = fetcher ?? ((url, init) => fetch(url, init));
  }

  get isOpen(): boolean {
    return this.#body !== undefined;
  }

  /** The server: scheme, host and port. */
  get address(): string {
    return URL.canParse(this.url) ? new URL(this.url).origin : this.url;
  }

  /**
   * Sends the request; {@link read} returns the body. Throws a `CAPProtocolError` for a redirect to
   * another server.
   */
  async send(lastEventId: string | null, limit: number = this.readTimeout): Promise<Response> {
    this.#request = new AbortController();
    const headers = new Headers(this.init.headers);
    if (lastEventId !== null) headers.set("last-event-id", lastEventId);
    const sent = this.#fetchWithin({
      ...this.init,
      headers,
      redirect: "manual",
      signal: this.#request.signal,
    });
    return within(sent, limit, "no answer", this.signal);
  }

  /**
   * Follows redirects within the same origin only: another server must not get the key or the
   * request.
   */
  async #fetchWithin(init: RequestInit): Promise<Response> {
    let url = this.url;
    for (let hops = 0; ; hops += 1) {
      const response = await this.#fetch(url, init);
      const { status } = response;
      if (response.type !== "opaqueredirect" && (status < 300 || status >= 400)) return response;
      const target = targetOf(response, url);
      // 301 to 303 turn a POST into a GET.
      const keepsMethod = status >= 307 || (init.method ?? "GET") === "GET";
      if (target.origin !== this.address || !keepsMethod || hops === MAX_REDIRECTS)
        throw redirected(status, target.origin);
      url = target.href;
    }
  }

  /** Reads the body of this response from now on. */
  follow(response: Response): void {
    this.#body = response.body?.getReader();
  }

  /** The next bytes; `undefined` at the end. */
  async read(limit: number = this.readTimeout): Promise<Uint8Array | undefined> {
    if (!this.#body) throw new Error("the body is gone");
    return (await within(this.#body.read(), limit, "nothing came", this.signal)).value;
  }

  /** Closes the open response. */
  drop(): void {
    this.#body?.cancel().catch(() => {});
    this.#request?.abort();
    this.#body = undefined;
  }
}

/** The target of a redirect. A browser hides it. */
function targetOf(response: Response, base: string): URL {
  const location = response.headers.get("location") ?? "";
  return new URL(location !== "" && URL.canParse(location, base) ? location : "data:", base);
}
