// The AG-UI face as React state, in the shape of useCapStream, so that the page need not care which face it speaks.
import type { ResumeEntry } from "capstan";
import type { CapStream, CapStreamState } from "capstan/react";
import { useEffect, useMemo, useRef, useState } from "react";

import { type AguiMessage, type AguiOptions, AguiRun } from "./agui/run.js";

export interface AguiStream extends Pick<CapStream, "state" | "retry" | "stop" | "reset"> {
  /** Says the last of the messages; those before it are the conversation so far. */
  send: (messages: readonly AguiMessage[], conversationId: string) => void;
  /** Answers what the last run asked. */
  answer: (resume: readonly ResumeEntry[], conversationId: string) => void;
}

export function useAguiStream(options: AguiOptions, stopRun: (streamId: string) => Promise<void>): AguiStream {
  const [state, setState] = useState<CapStreamState>({ status: "idle" });
  const latest = useRef(options);
  const current = useRef<AguiRun | null>(null);
  useEffect(() => {
    latest.current = options;
  });
  useEffect(() => () => current.current?.end(), []);

  const actions = useMemo(
    () => ({
      send: (messages: readonly AguiMessage[], conversationId: string) => {
        current.current?.end();
        current.current = new AguiRun(conversationId, { messages }, latest, setState);
        void current.current.follow();
      },
      answer: (resume: readonly ResumeEntry[], conversationId: string) => {
        current.current?.end();
        current.current = new AguiRun(conversationId, { messages: [], resume }, latest, setState);
        void current.current.follow();
      },
      retry: () => current.current?.again() ?? false,
      stop: async () => {
        const streamId = current.current?.streamId;
        if (streamId !== undefined) await stopRun(streamId);
      },
      reset: () => {
        current.current?.end();
        current.current = null;
        setState({ status: "idle" });
      },
    }),
    [stopRun],
  );
  return { state, ...actions };
}
