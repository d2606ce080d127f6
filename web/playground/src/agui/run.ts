// One run in the AG-UI face: the same bytes each time, from the cursor on, over resumableFetch.
import { CAPRuntimeError, Decoder, type Fetch, newId, type Notice, parseAGUIError, resumableFetch, type ResumeEntry } from "capstan";
import type { CapStreamAnswer, CapStreamState } from "capstan/react";

import { isObject, isText } from "../json.js";
import { type AguiEvent, AguiTranscript } from "./transcript.js";

/** About a frame of a screen. */
const FRAME = 16;

export interface AguiMessage {
  id: string;
  role: "user" | "assistant";
  content: string;
}

export interface AguiOptions {
  url: string;
  headers: Record<string, string>;
  fetch: Fetch;
  /** Longer waits are not slept through. */
  maxWait: number;
  onEvent: (event: AguiEvent) => void;
  onNotice: (notice: Notice) => void;
  onError: (error: unknown) => void;
}

/** A run, from the first request to its end. It tells nothing once it was left. */
export class AguiRun {
  streamId: string | undefined;

  readonly #body: string;
  readonly #transcript = new AguiTranscript();
  #left = new AbortController();
  /** The id of the last event. */
  #cursor: string | undefined;
  #reason = "completed";
  #wait: { because: string; until: number } | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Failed in a way that passes: the run waits for its client, or the line was dead. */
  #canGoOn = false;

  /** @param said the conversation so far and the question, or answers to what the last run asked. */
  constructor(
    readonly conversationId: string,
    said: { messages: readonly AguiMessage[]; resume?: readonly ResumeEntry[] },
    readonly options: { current: AguiOptions },
    readonly setState: (state: CapStreamState) => void,
  ) {
    const input = { threadId: conversationId, runId: newId(), ...said, tools: [], context: [], state: {}, forwardedProps: {} };
    // Serialised once: another body under the same id would be a conflict.
    this.#body = JSON.stringify(input);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#left.abort();
  }

  /** The same run goes on where it stood. False if only a new question can help. */
  again(): boolean {
    if (!this.#canGoOn) return false;
    this.#canGoOn = false;
    this.#left = new AbortController();
    void this.follow();
    return true;
  }

  async follow(): Promise<void> {
    const { signal } = this.#left;
    this.#wait = undefined;
    this.#show();
    try {
      await this.#run(signal);
      this.#finish({ status: "closed", reason: this.#reason, ...this.#answer() });
    } catch (error) {
      if (signal.aborted) return;
      this.#finish({ status: "failed", error, ...this.#answer() });
      this.options.current.onError(error);
    }
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { url, headers, maxWait } = this.options.current;
    const cursor: Record<string, string> = this.#cursor === undefined ? {} : { "last-event-id": this.#cursor };
    // Until an event says otherwise, what fails is the line.
    this.#canGoOn = true;
    const response = await resumableFetch({ fetch: this.#fetch, maxWait, onNotice: (notice) => this.#notice(notice) })(url, {
      method: "POST",
      headers: { ...headers, ...cursor, "content-type": "application/json", accept: "text/event-stream" },
      body: this.#body,
      signal,
    });
    if (!response.ok || !response.body) {
      this.#canGoOn = false;
      throw await refusal(response);
    }
    await this.#read(response.body);
    this.#canGoOn = false;
  }

  readonly #fetch: Fetch = async (url, init) => {
    const response = await this.options.current.fetch(url, init);
    this.streamId = response.headers.get("x-stream-id") ?? this.streamId;
    return response;
  };

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new Decoder();
    const reader = body.getReader();
    try {
      for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
        if (value) decoder.push(value);
        for (let frame = decoder.take(); frame; frame = decoder.take()) {
          this.#cursor = decoder.lastEventId || this.#cursor;
          this.#take(frame.data);
        }
      }
    } finally {
      void reader.cancel().catch(() => {});
    }
  }

  #take(data: string): void {
    const event = eventOf(data);
    if (event === undefined) this.#transcript.takeUnreadable(data);
    else {
      this.options.current.onEvent(event);
      this.#transcript.take(event);
      if (event.type === "RUN_FINISHED") this.#reason = reasonOf(event) ?? this.#reason;
      if (event.type === "RUN_ERROR") this.#fail(event);
    }
    this.#soon();
  }

  #fail(event: AguiEvent): never {
    const error = parseAGUIError(event);
    this.#canGoOn = error?.severity === "TRANSIENT";
    throw error ?? new Error("the run failed");
  }

  #notice(notice: Notice): void {
    this.options.current.onNotice(notice);
    if (notice.type === "retrying") this.#wait = { because: notice.because, until: Date.now() + notice.wait };
    if (notice.type === "connected" || notice.type === "resumed") this.#wait = undefined;
    this.#soon();
  }

  /** Events come faster than a screen can show: what comes within a frame is shown at once. */
  #soon(): void {
    this.#timer ??= setTimeout(() => this.#show(), FRAME);
  }

  #show(): void {
    this.#timer = undefined;
    if (this.#left.signal.aborted) return;
    const answer = this.#answer();
    this.setState(this.#wait ? { status: "retrying", ...this.#wait, ...answer } : { status: "streaming", ...answer });
  }

  #finish(state: CapStreamState): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.setState(state);
  }

  #answer(): CapStreamAnswer {
    const { text, blocks } = this.#transcript;
    return { text, blocks, streamId: this.streamId, conversationId: this.conversationId };
  }
}

async function refusal(response: Response): Promise<unknown> {
  const told = parseAGUIError(await response.text());
  if (response.status === 404 && (told === null || told.kind === "route_not_found")) {
    const message = "This gateway does not serve the AG-UI face. Choose CAP, or update the gateway.";
    return { code: "CAPABILITY_NOT_FOUND", message, http_status: 404 };
  }
  return told ?? new CAPRuntimeError({ status: response.status });
}

function eventOf(data: string): AguiEvent | undefined {
  try {
    const event: unknown = JSON.parse(data);
    return isObject(event) && isText(event["type"]) ? (event as AguiEvent) : undefined;
  } catch {
    return undefined;
  }
}

/** Why a run ended, as the gateway has it in its metadata. */
function reasonOf({ metadata }: AguiEvent): string | undefined {
  const ours = isObject(metadata) ? metadata["capstan"] : undefined;
  const reason = isObject(ours) ? ours["reason"] : undefined;
  return isText(reason) ? reason : undefined;
}
