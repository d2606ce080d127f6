// The connection between page and gateway, and the ways to break it. The page breaks only its own
// requests.
import { Decoder, type Fetch, hasData } from "capstan";

/** The time that a reader needs to take received bytes, in milliseconds. */
const READ_ON = 5;
const CUT = "you cut the connection";
/** Events that end a run. After them there is nothing to cut. */
const LAST =
  /^\[DONE\]$|"op":"(CLOSE|close)"|"type":"(RUN_(FINISHED|ERROR)|response\.(completed|incomplete|failed)|finish|abort|error)"/;

/** The configured faults of the connection. */
export interface Trouble {
  /** Cut after this many packets; 0 for never. */
  cutEvery: number;
  /** Forget the cursor on a resume, so that everything is sent again and repeats are dropped. */
  isForgetful: boolean;
}

export interface LineListener {
  /** Called when the page cuts its own request. */
  onCut: () => void;
  /** Called for each frame, with its lines. */
  onFrame: (lines: readonly string[]) => void;
  /** Called with the id of the gateway that answered, if there are several. */
  onServed?: (by: string) => void;
}

/** A fetch that can be cut. */
export class Line {
  trouble: Trouble = { cutEvery: 0, isForgetful: false };
  #request: AbortController | undefined;
  #count = 0;
  #isMarked = false;

  constructor(readonly listener: LineListener) {}

  readonly fetch: Fetch = async (url, init) => {
    // The request that stops a run is never cut.
    if (init.method === "DELETE") return fetch(url, init);
    const request = new AbortController();
    init.signal?.addEventListener("abort", () => request.abort(init.signal?.reason), {
      once: true,
    });
    if (init.signal?.aborted) request.abort(init.signal.reason);
    this.#request = request;
    this.#count = 0;
    this.#isMarked = false;
    const response = await fetch(this.#place(url), {
      ...init,
      headers: this.#headers(init),
      signal: request.signal,
    });
    const by = response.headers.get("x-served-by");
    if (by !== null) this.listener.onServed?.(by);
    return this.#listened(response, request);
  };

  /** Cuts the open connection. */
  cut(): void {
    if (!this.#request || this.#request.signal.aborted) return;
    this.listener.onCut();
    this.#request.abort(new Error(CUT));
  }

  /** Forgets the connection, because nothing is open. */
  rest(): void {
    this.#request = undefined;
  }

  /** The cursor may also be in the URL. */
  #place(url: string): string {
    return this.trouble.isForgetful ? url.replace(/&starting_after=\d+/, "") : url;
  }

  #headers(init: RequestInit): Headers {
    const headers = new Headers(init.headers);
    const cursor = headers.get("last-event-id");
    if (cursor !== null && this.trouble.isForgetful)
      headers.set("last-event-id", cursor.split(":")[0] ?? cursor);
    return headers;
  }

  /**
   * Forwards frame by frame, so that a cut comes after the exact number of packets, however many
   * arrive at once.
   */
  #listened(response: Response, request: AbortController): Response {
    if (!response.body || !/event-stream/.test(response.headers.get("content-type") ?? ""))
      return response;
    const decoder = new Decoder();
    const encoder = new TextEncoder();
    const watch = new TransformStream<Uint8Array, Uint8Array>({
      transform: (bytes, controller) => {
        decoder.push(bytes);
        // Heartbeats belong to no frame, but they show that the connection is alive.
        controller.enqueue(encoder.encode(":\n"));
        for (let frame = decoder.takeAny(); frame && !this.#isSpent; frame = decoder.takeAny()) {
          this.listener.onFrame(frame.lines);
          controller.enqueue(encoder.encode(`${frame.lines.join("\n")}\n\n`));
          if (hasData(frame) && !LAST.test(frame.data)) this.#counted(request);
        }
      },
      // The body may have arrived completely before the cut. For the reader that makes no
      // difference.
      flush: async (controller) => {
        if (!this.#isSpent) return;
        await new Promise((resolve) => setTimeout(resolve, READ_ON));
        this.#markOnce();
        controller.error(new Error(CUT));
      },
    });
    const { status, statusText, headers } = response;
    return new Response(response.body.pipeThrough(watch, { signal: request.signal }), {
      status,
      statusText,
      headers,
    });
  }

  #counted(request: AbortController): void {
    this.#count += 1;
    if (!this.#isSpent) return;
    // The reader must take what was forwarded before the abort, because an abort drops buffered
    // data.
    setTimeout(() => {
      this.#markOnce();
      request.abort(new Error(CUT));
    }, READ_ON);
  }

  #markOnce(): void {
    if (!this.#isMarked) this.listener.onCut();
    this.#isMarked = true;
  }

  /** The quota until the cut is used up. Nothing more is forwarded. */
  get #isSpent(): boolean {
    return this.trouble.cutEvery > 0 && this.#count >= this.trouble.cutEvery;
  }
}
