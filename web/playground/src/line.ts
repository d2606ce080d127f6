// The line between page and gateway, and the ways to break it. The page cuts only its own requests.
import { Decoder, type Fetch, hasData } from "capstan";

/** Enough for a reader to take what has come, in milliseconds. */
const READ_ON = 5;
const CUT = "you cut the connection";
/** After these a run is over, and there is nothing left to cut. */
const LAST =
  /^\[DONE\]$|"op":"(CLOSE|close)"|"type":"(RUN_(FINISHED|ERROR)|response\.(completed|incomplete|failed)|finish|abort|error)"/;

/** How the line misbehaves. */
export interface Trouble {
  /** Cut after so many packets; 0 for never. */
  cutEvery: number;
  /** On resuming, forget the place and ask for everything again: repeats come, and are dropped. */
  isForgetful: boolean;
}

export interface LineListener {
  /** The page cut its own request. */
  onCut: () => void;
  /** A frame as it came. */
  onFrame: (lines: readonly string[]) => void;
  /** One of several gateways answers: this one. */
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
    // Stopping a run is not part of the line that is broken.
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

  /** Cuts the connection that is open. */
  cut(): void {
    if (!this.#request || this.#request.signal.aborted) return;
    this.listener.onCut();
    this.#request.abort(new Error(CUT));
  }

  /** Nothing is open any more. */
  rest(): void {
    this.#request = undefined;
  }

  /** An address may say where it is read on, too. */
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
   * Passes on frame by frame, so that a cut comes after exactly so many packets, however many
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
        // Heartbeats are part of no frame, but say that the line is alive.
        controller.enqueue(encoder.encode(":\n"));
        for (let frame = decoder.takeAny(); frame && !this.#isSpent; frame = decoder.takeAny()) {
          this.listener.onFrame(frame.lines);
          controller.enqueue(encoder.encode(`${frame.lines.join("\n")}\n\n`));
          if (hasData(frame) && !LAST.test(frame.data)) this.#counted(request);
        }
      },
      // All of it may have come before the cut; that makes no difference to whoever reads.
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
    // What was passed on must be read before the line goes: an aborted stream loses what it holds.
    setTimeout(() => {
      this.#markOnce();
      request.abort(new Error(CUT));
    }, READ_ON);
  }

  #markOnce(): void {
    if (!this.#isMarked) this.listener.onCut();
    this.#isMarked = true;
  }

  /** Nothing more passes, though more may have come. */
  get #isSpent(): boolean {
    return this.trouble.cutEvery > 0 && this.#count >= this.trouble.cutEvery;
  }
}
