// One run in any face, as React state. Each face defines how its run is requested and decoded.
import {
  CAPRuntimeError,
  Decoder,
  type Fetch,
  type Notice,
  parseAGUIError,
  type ResumeEntry,
} from "capstan";
import type { CapStreamAnswer, CapStreamState } from "capstan/react";

import { RunDisplay } from "../../packages/capstan/src/react/run-display.js";
import type { Blocks } from "./blocks.js";
import { isObject } from "./json.js";
import type { Mark } from "./log.js";

export interface Message {
  id: string;
  role: "user" | "assistant";
  content: string;
}

export interface FaceOptions {
  /** The base URL of the gateway's API, with `/v1`. */
  base: string;
  /** The agent; empty for the default one. */
  agent: string;
  headers: Record<string, string>;
  fetch: Fetch;
  /** The longest wait before a retry. */
  maxWait: number;
  onMark: (kind: Mark["kind"], label: string) => void;
  onNotice: (notice: Notice) => void;
  onError: (error: unknown) => void;
}

/** The input of a run. */
export interface RunInput {
  conversationId: string;
  /** The conversation so far, with the question last. */
  messages: readonly Message[];
  /** The messages replace what the gateway has stored of the conversation. */
  isWhole?: boolean;
  /** Answers to the last run's questions, in place of a question. */
  resume?: readonly ResumeEntry[];
  /** An existing run, which is read from its start. */
  streamId?: string;
}

/** A run, from the first request to its end. After it is left, it changes no state. */
export abstract class FaceRun {
  streamId: string | undefined;
  /** Whether the same run can continue: it waits for its client, or the connection was lost. */
  protected canGoOn = false;
  #left = new AbortController();
  readonly #display: RunDisplay;

  constructor(
    readonly input: RunInput,
    readonly latest: { current: FaceOptions },
    setState: (state: CapStreamState) => void,
  ) {
    this.streamId = input.streamId;
    this.#display = new RunDisplay(setState, () => this.#answer());
  }

  /**
   * Reads the run from its cursor to its end, and returns the reason of the end. Throws its error.
   */
  protected abstract read(signal: AbortSignal): Promise<string>;
  protected abstract readonly transcript: Pick<Blocks, "text" | "blocks">;

  end(): void {
    this.#left.abort();
  }

  /** Continues the same run. Returns false if only a new question can help. */
  again(): boolean {
    if (!this.canGoOn) return false;
    this.canGoOn = false;
    this.#left = new AbortController();
    void this.follow();
    return true;
  }

  async follow(): Promise<void> {
    const { signal } = this.#left;
    this.#display.begin(signal);
    try {
      const reason = await this.read(signal);
      if (!signal.aborted) this.#display.close(reason);
    } catch (error) {
      if (signal.aborted) return;
      this.#display.fail(error);
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

  /** Fetches over the connection that the user can break. Stores the id of the stream. */
  protected readonly fetch: Fetch = async (url, init) => {
    const response = await this.options.fetch(url, init);
    this.streamId = response.headers.get("x-stream-id") ?? this.streamId;
    return response;
  };

  protected readonly notice = (notice: Notice): void => {
    this.options.onNotice(notice);
    this.#display.notice(notice);
  };

  protected soon(): void {
    this.#display.soon();
  }

  #answer(): CapStreamAnswer {
    const { text, blocks } = this.transcript;
    return { text, blocks, streamId: this.streamId, conversationId: this.input.conversationId };
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

/** Parses a JSON object; undefined for anything else. */
export function objectOf(data: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(data);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The error for a run that the gateway refused. `told` is the failure in the response's body, if
 * there is one.
 */
export function refusal(
  status: number,
  failure: ReturnType<typeof parseAGUIError>,
  face: string,
): unknown {
  if (status === 404 && (failure === null || failure.kind === "route_not_found")) {
    const message = `This gateway does not serve ${face}. Choose CAP, or update the gateway.`;
    return { code: "CAPABILITY_NOT_FOUND", message, http_status: 404 };
  }
  return failure ?? new CAPRuntimeError({ status });
}
