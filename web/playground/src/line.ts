// The line between page and gateway, and the ways to break it. The page cuts only its own requests.
import { Decoder, type Fetch } from "capstan";

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
}

/** A fetch that can be cut. */
export class Line {
  trouble: Trouble = { cutEvery: 0, isForgetful: false };
  #request: AbortController | undefined;
  #count = 0;

  constructor(readonly listener: LineListener) {}

  readonly fetch: Fetch = async (url, init) => {
    // Stopping a run is not part of the line that is broken.
    if (init.method === "DELETE") return fetch(url, init);
    const request = new AbortController();
    init.signal?.addEventListener("abort", () => request.abort(init.signal?.reason), { once: true });
    if (init.signal?.aborted) request.abort(init.signal.reason);
    this.#request = request;
    this.#count = 0;
    const response = await fetch(url, { ...init, headers: this.#headers(init), signal: request.signal });
    return this.#listened(response);
  };

  /** Cuts the connection that is open. */
  cut(): void {
    if (!this.#request || this.#request.signal.aborted) return;
    this.listener.onCut();
    this.#request.abort(new Error("you cut the connection"));
  }

  /** A packet came through; it may have been one too many. */
  count(): void {
    this.#count += 1;
    if (this.trouble.cutEvery > 0 && this.#count >= this.trouble.cutEvery) this.cut();
  }

  /** Nothing is open any more. */
  rest(): void {
    this.#request = undefined;
  }

  #headers(init: RequestInit): Headers {
    const headers = new Headers(init.headers);
    const cursor = headers.get("last-event-id");
    if (cursor !== null && this.trouble.isForgetful) headers.set("last-event-id", cursor.split(":")[0] ?? cursor);
    return headers;
  }

  /** Looks at the frames as they pass. */
  #listened(response: Response): Response {
    if (!response.body || !/event-stream/.test(response.headers.get("content-type") ?? "")) return response;
    const decoder = new Decoder();
    const watch = new TransformStream<Uint8Array, Uint8Array>({
      transform: (bytes, controller) => {
        decoder.push(bytes);
        for (let frame = decoder.takeAny(); frame; frame = decoder.takeAny()) this.listener.onFrame(frame.lines);
        controller.enqueue(bytes);
      },
    });
    const { status, statusText, headers } = response;
    return new Response(response.body.pipeThrough(watch), { status, statusText, headers });
  }
}
