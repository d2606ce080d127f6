// One run, whatever face it is told in: its state as a page shows it. What a face adds is how the
// run is asked for and read.
import {
  CAPRuntimeError,
  Decoder,
  type Fetch,
  type Notice,
  parseAGUIError,
  type ResumeEntry,
} from "capstan";
import type { CapStreamAnswer, CapStreamState } from "capstan/react";

import type { Blocks } from "./blocks.js";
import { isObject } from "./json.js";
import type { Mark } from "./log.js";

/** About a frame of a screen. */
const FRAME = 16;

export interface Message {
  id: string;
  role: "user" | "assistant";
  content: string;
}

export interface FaceOptions {
  /** The gateway's API, up to `/v1`. */
  base: string;
  /** The agent; empty for the default one. */
  agent: string;
  headers: Record<string, string>;
  fetch: Fetch;
  /** Longer waits are not slept through. */
  maxWait: number;
  onMark: (kind: Mark["kind"], label: string) => void;
  onNotice: (notice: Notice) => void;
  onError: (error: unknown) => void;
}

/** What a run is asked. */
export interface Said {
  conversationId: string;
  /** The conversation so far, the question last. */
  messages: readonly Message[];
  /** The messages are all that counts: what the gateway has stored of the conversation does not. */
  isWhole?: boolean;
  /** Answers to what the last run asked, in place of a question. */
  resume?: readonly ResumeEntry[];
  /** The run is there already: it is told from its start. */
  streamId?: string;
}

/** A run, from the first request to its end. It tells nothing once it was left. */
export abstract class FaceRun {
  streamId: string | undefined;
  /** The same run may go on where it stood: it waits for its client, or the line was dead. */
  protected canGoOn = false;
  #left = new AbortController();
  #wait: { because: string; until: number } | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly said: Said,
    readonly latest: { current: FaceOptions },
    readonly setState: (state: CapStreamState) => void,
  ) {
    this.streamId = said.streamId;
  }

  /**
   * Reads the run from where it stands to its end; says why it ended. Throws what it failed with.
   */
  protected abstract read(signal: AbortSignal): Promise<string>;
  protected abstract readonly transcript: Pick<Blocks, "text" | "blocks">;

  end(): void {
    clearTimeout(this.#timer);
    this.#left.abort();
  }

  /** The same run goes on. False if only a new question can help. */
  again(): boolean {
    if (!this.canGoOn) return false;
    this.canGoOn = false;
    this.#left = new AbortController();
    void this.follow();
    return true;
  }

  async follow(): Promise<void> {
    const { signal } = this.#left;
    this.#wait = undefined;
    this.#show();
    try {
      const reason = await this.read(signal);
      if (!signal.aborted) this.#finish({ status: "closed", reason, ...this.#answer() });
    } catch (error) {
      if (signal.aborted) return;
      this.#finish({ status: "failed", error, ...this.#answer() });
      this.options.onError(error);
    }
  }

  protected get options(): FaceOptions {
    return this.latest.current;
  }

  /** The agent's routes. */
  protected get route(): string {
    const { base, agent } = this.options;
    return agent === "" ? base : `${base}/agents/${encodeURIComponent(agent)}`;
  }

  /** Over the line that can be broken; it notes which stream is told. */
  protected readonly fetch: Fetch = async (url, init) => {
    const response = await this.options.fetch(url, init);
    this.streamId = response.headers.get("x-stream-id") ?? this.streamId;
    return response;
  };

  protected readonly notice = (notice: Notice): void => {
    this.options.onNotice(notice);
    if (notice.type === "retrying")
      this.#wait = { because: notice.because, until: Date.now() + notice.wait };
    if (notice.type === "connected" || notice.type === "resumed") this.#wait = undefined;
    this.soon();
  };

  /** Events come faster than a screen can show: what comes within a frame is shown at once. */
  protected soon(): void {
    this.#timer ??= setTimeout(() => this.#show(), FRAME);
  }

  #show(): void {
    this.#timer = undefined;
    if (this.#left.signal.aborted) return;
    const answer = this.#answer();
    this.setState(
      this.#wait
        ? { status: "retrying", ...this.#wait, ...answer }
        : { status: "streaming", ...answer },
    );
  }

  #finish(state: CapStreamState): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.setState(state);
  }

  #answer(): CapStreamAnswer {
    const { text, blocks } = this.transcript;
    return { text, blocks, streamId: this.streamId, conversationId: this.said.conversationId };
  }
}

/** The frames of a body. */
export async function* framesOf(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<{ data: string; id: string | undefined }> {
  const decoder = new Decoder();
  const reader = body.getReader();
  try {
    for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
      if (value) decoder.push(value);
      for (let frame = decoder.take(); frame; frame = decoder.take())
        yield { data: frame.data, id: decoder.lastEventId };
    }
  } finally {
    void reader.cancel().catch(() => {});
  }
}

/** A JSON object; nothing if it is none. */
export function objectOf(data: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(data);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Why a gateway does not start a run; `told` is what its body says, if that is a failure. */
export function refusal(
  status: number,
  told: ReturnType<typeof parseAGUIError>,
  face: string,
): unknown {
  if (status === 404 && (told === null || told.kind === "route_not_found")) {
    const message = `This gateway does not serve ${face}. Choose CAP, or update the gateway.`;
    return { code: "CAPABILITY_NOT_FOUND", message, http_status: 404 };
  }
  return told ?? new CAPRuntimeError({ status });
}
