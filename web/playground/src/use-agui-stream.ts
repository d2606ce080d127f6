// The AG-UI face as React state, in the shape of useCapStream, so that the page need not care which face it speaks.
import type { Fetch, Notice, ResumeEntry } from "capstan";
import { newId } from "capstan";
import type { CapStream, CapStreamState } from "capstan/react";
import { useEffect, useMemo, useRef, useState } from "react";

import { AguiTranscript, type AguiEvent, runAgui } from "./agui.js";

export interface AguiStreamOptions {
  url: string;
  headers: Record<string, string>;
  fetch: Fetch;
  stopRun: (streamId: string) => Promise<void>;
  onEvent: (event: AguiEvent) => void;
  onNotice: (notice: Notice) => void;
  onError: (error: unknown) => void;
}

export function useAguiStream(options: AguiStreamOptions): Omit<CapStream, "attach" | "retry"> {
  const [state, setState] = useState<CapStreamState>({ status: "idle" });
  const latest = useRef(options);
  const left = useRef<AbortController | null>(null);
  const streamId = useRef<string | undefined>(undefined);
  useEffect(() => {
    latest.current = options;
  });
  useEffect(() => () => left.current?.abort(), []);

  const actions = useMemo(
    () => ({
      send: (message: string, conversationId = newId()) => {
        left.current?.abort();
        left.current = new AbortController();
        streamId.current = undefined;
        void follow(latest.current, { message }, conversationId, left.current.signal, streamId, setState);
      },
      answer: (resume: readonly ResumeEntry[], conversationId: string) => {
        left.current?.abort();
        left.current = new AbortController();
        streamId.current = undefined;
        void follow(latest.current, { message: "", resume }, conversationId, left.current.signal, streamId, setState);
      },
      stop: async () => {
        if (streamId.current) await latest.current.stopRun(streamId.current);
      },
      reset: () => {
        left.current?.abort();
        setState({ status: "idle" });
      },
    }),
    [],
  );
  return { state, ...actions };
}

async function follow(
  options: AguiStreamOptions,
  said: { message: string; resume?: readonly ResumeEntry[] },
  conversationId: string,
  signal: AbortSignal,
  streamId: { current: string | undefined },
  setState: (state: CapStreamState) => void,
): Promise<void> {
  const transcript = new AguiTranscript();
  const answer = () => ({ text: transcript.text, blocks: transcript.blocks, streamId: streamId.current, conversationId });
  const fetch: Fetch = async (url, init) => {
    const response = await options.fetch(url, init);
    streamId.current = response.headers.get("x-stream-id") ?? streamId.current;
    return response;
  };
  const onNotice = (notice: Notice) => {
    options.onNotice(notice);
    if (notice.type === "retrying") setState({ status: "retrying", because: notice.because, until: Date.now() + notice.wait, ...answer() });
    if (notice.type === "resumed") setState({ status: "streaming", ...answer() });
  };
  const onEvent = (event: AguiEvent) => {
    transcript.take(event);
    options.onEvent(event);
    setState({ status: "streaming", ...answer() });
  };
  setState({ status: "streaming", ...answer() });
  try {
    await runAgui({ ...options, ...said, fetch, threadId: conversationId, signal, onNotice, onEvent });
    setState({ status: "closed", reason: "completed", ...answer() });
  } catch (error) {
    if (signal.aborted) return;
    setState({ status: "failed", error, ...answer() });
    options.onError(error);
  }
}
