// One request that may be sent again and again: the same bytes each time, from the cursor on, to
// one server and no other.
import { redirected } from "./errors.js";
import { type Fetch, within } from "./wait.js";

/** How long a response may be silent: four heartbeats of the gateway's. */
const READ_TIMEOUT = 60_000;
/** What a deploy or a proxy answers for the server while a stream is resumed. */
const PASSING_WHILE_RESUMING = [429, 502, 503, 504];
/** More is a loop. */
const MAX_REDIRECTS = 10;

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
  /** As a whole, also if it was given relative to a page. */
  readonly url: string;
  readonly #fetch: Fetch;
  #body: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #request: AbortController | undefined;

  /**
   * @param fetcher another fetch than the platform's.
   * @param signal the caller's own wish to stop.
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
    // Called as a method, the platform's own would complain.
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
   * Sends the request; the body is read with {@link read}. Throws a `CAPProtocolError` for a
   * redirect to elsewhere.
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
   * Redirects are followed within their origin: another server gets neither the key nor what is
   * asked.
   */
  async #fetchWithin(init: RequestInit): Promise<Response> {
    let url = this.url;
    for (let hops = 0; ; hops += 1) {
      const response = await this.#fetch(url, init);
      const { status } = response;
      if (response.type !== "opaqueredirect" && (status < 300 || status >= 400)) return response;
      const target = targetOf(response, url);
      // 301 to 303 would make a GET of a POST.
      const keepsMethod = status >= 307 || (init.method ?? "GET") === "GET";
      if (target.origin !== this.address || !keepsMethod || hops === MAX_REDIRECTS)
        throw redirected(status, target.origin);
      url = target.href;
    }
  }

  /** Takes over the body of a response. */
  follow(response: Response): void {
    this.#body = response.body?.getReader();
  }

  /** The next bytes; `undefined` at the end. */
  async read(limit: number = this.readTimeout): Promise<Uint8Array | undefined> {
    if (!this.#body) throw new Error("the body is gone");
    return (await within(this.#body.read(), limit, "nothing came", this.signal)).value;
  }

  /** Closes what is open. */
  drop(): void {
    this.#body?.cancel().catch(() => {});
    this.#request?.abort();
    this.#body = undefined;
  }
}

/** Where a redirect leads. A browser does not say, and then it is nowhere. */
function targetOf(response: Response, base: string): URL {
  const location = response.headers.get("location") ?? "";
  return new URL(location !== "" && URL.canParse(location, base) ? location : "data:", base);
}
