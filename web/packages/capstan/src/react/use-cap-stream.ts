// `useCapStream`: one run at a time as React state: resumed after cuts, in one discriminated union.
import { useEffect, useMemo, useRef, useState } from "react";

import type { CallOptions, CapClient } from "../client.js";
import { CAPConnectionError, CAPRuntimeError } from "../errors.js";
import type { StreamPacket } from "../generated/wire.js";
import type { Notice } from "../notice.js";
import { type Envelope, newId, type ResumeEntry } from "../request.js";
import type { PacketStream } from "../stream.js";
import { type Block, Transcript } from "../transcript.js";
import { RunDisplay } from "./run-display.js";

/** The answer so far. */
export interface CapStreamAnswer {
  text: string;
  /** Text and events in their order. */
  blocks: readonly Block[];
  streamId: string | undefined;
  conversationId: string;
}

/** The state of a run. */
export type CapStreamState =
  | { status: "idle" }
  | ({ status: "streaming" } & CapStreamAnswer)
  /** The connection is lost. The next retry is at `until` (on the clock of `Date.now`). */
  | ({ status: "retrying"; because: string; until: number } & CapStreamAnswer)
  | ({ status: "failed"; error: unknown } & CapStreamAnswer)
  | ({ status: "closed"; reason: string } & CapStreamAnswer);

export interface CapStreamOptions {
  /** Called for each packet, before the state shows it. */
  onPacket?: (packet: StreamPacket) => void;
  /** Called for events between packets. */
  onNotice?: (notice: Notice) => void;
  /** Called for a failure. `handleError` of `useAGUIErrorHandler` fits. */
  onError?: (error: unknown) => void;
}

export interface CapStream {
  state: CapStreamState;
  /**
   * Sends a message, by default in a new conversation. Stops following the present run, which
   * continues on the server.
   */
  send: (message: string, conversationId?: string) => void;
  /** Sends your own request, for example one with the whole conversation. */
  assist: (request: Envelope, conversationId: string) => void;
  /** Answers the questions of a conversation's last run. */
  answer: (resume: readonly ResumeEntry[], conversationId: string) => void;
  /** Follows an existing stream. */
  attach: (cursor: string) => void;
  /**
   * After a transient failure: starts the next attempt of the same run. Returns false if only a new
   * request can help.
   */
  retry: () => boolean;
  /** Stops the run at the server. */
  stop: () => Promise<void>;
  /** Returns to idle. */
  reset: () => void;
}

/** Runs of one client as React state. The functions are stable as long as the client is. */
export function useCapStream(client: CapClient, options: CapStreamOptions = {}): CapStream {
  const [state, setState] = useState<CapStreamState>({ status: "idle" });
  const latest = useRef(options);
  const current = useRef<Run | null>(null);
  useEffect(() => {
    latest.current = options;
  });
  useEffect(() => () => current.current?.end(), []);

  const actions = useMemo(() => {
    const begin = (conversationId: string, open: (call: CallOptions) => PacketStream) => {
      current.current?.end();
      current.current = new Run(conversationId, open, latest, setState);
      void current.current.follow();
    };
    const assist = (request: Envelope, conversationId: string) =>
      begin(conversationId, (call) => client.assist(request, call));
    return {
      assist,
      send: (message: string, conversationId = newId()) =>
        assist(client.question(conversationId, message), conversationId),
      answer: (resume: readonly ResumeEntry[], conversationId: string) =>
        assist(client.answers(conversationId, resume), conversationId),
      retry: () => current.current?.again() ?? false,
      attach: (cursor: string) => begin("", (call) => client.attach(cursor, call)),
      stop: async () => {
        const streamId = current.current?.streamId;
        if (streamId !== undefined) await client.stop(streamId);
      },
      reset: () => {
        current.current?.end();
        current.current = null;
        setState({ status: "idle" });
      },
    };
  }, [client]);
  return { state, ...actions };
}

/** One run, from the first request to its end. After it is left, it changes no state. */
class Run {
  #left = new AbortController();
  readonly #transcript = new Transcript();
  #packets: PacketStream | undefined;
  readonly #display: RunDisplay;
  #failure: unknown;

  constructor(
    readonly conversationId: string,
    readonly open: (call: CallOptions) => PacketStream,
    readonly options: { current: CapStreamOptions },
    setState: (state: CapStreamState) => void,
  ) {
    this.#display = new RunDisplay(setState, () => this.#answer());
  }

  get streamId(): string | undefined {
    return this.#packets?.streamId;
  }

  end(): void {
    this.#left.abort();
  }

  /** Sends the same request again, if the run waits for its client or the connection was lost. */
  again(): boolean {
    const failure = this.#failure;
    const isWaiting = failure instanceof CAPRuntimeError && failure.error?.severity === "TRANSIENT";
    if (!isWaiting && !(failure instanceof CAPConnectionError)) return false;
    this.#failure = undefined;
    this.#left = new AbortController();
    void this.follow();
    return true;
  }

  async follow(): Promise<void> {
    const { signal } = this.#left;
    const lastEventId = this.#packets?.cursor;
    this.#packets = this.open({ signal, lastEventId, onNotice: (notice) => this.#notice(notice) });
    this.#display.begin(signal);
    try {
      for await (const packet of this.#packets) this.#take(packet);
      this.#display.close(this.#transcript.reason ?? "completed");
    } catch (error) {
      if (signal.aborted) return;
      this.#failure = error;
      this.#display.fail(error);
      this.options.current.onError?.(error);
    }
  }

  #take(packet: StreamPacket): void {
    this.options.current.onPacket?.(packet);
    this.#transcript.take(packet);
    this.#display.soon();
  }

  #notice(notice: Notice): void {
    this.options.current.onNotice?.(notice);
    this.#display.notice(notice);
  }

  #answer(): CapStreamAnswer {
    const { text, blocks } = this.#transcript;
    return { text, blocks, streamId: this.streamId, conversationId: this.conversationId };
  }
}
