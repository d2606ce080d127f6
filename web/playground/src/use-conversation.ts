// The conversation: turns so far and the one that runs, in either face, over a line that can be broken.
import { CapClient, describeNotice, newId, type Notice, parseAGUIError, type ResumeEntry, type StreamPacket } from "capstan";
import { useAGUIErrorHandler, useCapStream } from "capstan/react";
import { useCallback, useMemo, useRef, useState } from "react";

import type { AguiMessage } from "./agui/run.js";
import type { AguiEvent } from "./agui/transcript.js";
import { authorization } from "./authorization.js";
import { Line } from "./line.js";
import { Log } from "./log.js";
import type { TurnData } from "./show/Turn.js";
import { useAguiStream } from "./use-agui-stream.js";

export type Face = "cap" | "ag-ui";

/** Longer waits are not slept through: the page counts down, and a person decides. */
const MAX_WAIT = 900;

export interface Setup {
  agent: string;
  face: Face;
  apiKey: string;
}

export function useConversation({ agent, face, apiKey }: Setup) {
  const log = useMemo(() => new Log(), []);
  const line = useMemo(() => new Line({ onCut: () => log.mark("cut", "you cut the connection"), onFrame: (lines) => log.frame(lines) }), [log]);
  const [past, setPast] = useState<TurnData[]>([]);
  const [current, setCurrent] = useState<{ id: string; question: string; face: Face } | null>(null);
  const conversation = useRef(newId());
  const last = useRef("");
  const resend = useRef<() => void>(() => {});

  const { handleError, dismiss } = useAGUIErrorHandler({
    onRetry: () => resend.current(),
  });
  const base = `${location.origin}/v1`;
  const route = agent === "" ? "" : `/agents/${encodeURIComponent(agent)}`;
  // Warnings are shown in the answer; the console need not have them, too.
  const client = useMemo(() => new CapClient(base, apiKey, { fetch: line.fetch, path: `${route}/assist`, maxWait: MAX_WAIT, warn: () => {} }), [apiKey, base, line, route]);

  const onNotice = useCallback((notice: Notice) => markNotice(log, notice), [log]);
  const onError = useCallback(
    (error: unknown) => {
      log.mark("error", parseAGUIError(error)?.message ?? "the run failed");
      line.rest();
      handleError(error);
    },
    [handleError, line, log],
  );
  const onPacket = (packet: StreamPacket) => {
    log.mark(packet.op.toLowerCase() as "delta", `${packet.op} ${packet.seq}`);
    if (packet.op === "CLOSE") line.rest();
  };
  const onEvent = (event: AguiEvent) => {
    const isText = event.type === "TEXT_MESSAGE_CONTENT";
    log.mark(event.type === "RUN_FINISHED" ? "close" : isText ? "delta" : "event", event.type);
    if (event.type === "RUN_FINISHED") line.rest();
  };
  const cap = useCapStream(client, { onPacket, onNotice, onError });
  const stopRun = useCallback((streamId: string) => client.stop(streamId), [client]);
  const agui = useAguiStream({ url: `${base}${route}/ag-ui`, headers: authorization(apiKey), fetch: line.fetch, maxWait: MAX_WAIT, onEvent, onNotice, onError }, stopRun);

  const stream = (current?.face ?? face) === "cap" ? cap : agui;
  const isRunning = current !== null && (stream.state.status === "streaming" || stream.state.status === "retrying");
  const turn = current && { id: current.id, question: current.question, state: stream.state };

  const turns = turn ? [...past, turn] : past;

  const begin = (question: string): string => {
    const id = newId();
    setPast(turns);
    dismiss();
    log.begin();
    setCurrent({ id, question, face });
    (face === "cap" ? agui : cap).reset();
    return id;
  };
  const send = (question: string) => {
    const id = begin(question);
    last.current = question;
    if (face === "cap") cap.send(question, conversation.current);
    else agui.send([...messagesOf(turns), { id, role: "user", content: question }], conversation.current);
  };
  const answer = (resume: readonly ResumeEntry[], said: string) => {
    begin(said);
    (face === "cap" ? cap : agui).answer(resume, conversation.current);
  };
  resend.current = () => {
    dismiss();
    // A run that waits for its client goes on; any other failure needs a new question.
    if (!stream.retry()) send(last.current);
  };
  const clear = () => {
    cap.reset();
    agui.reset();
    dismiss();
    log.begin();
    conversation.current = newId();
    setPast([]);
    setCurrent(null);
  };
  const retry = useCallback(() => resend.current(), []);
  const stop = () => void stream.stop().catch(handleError);
  return { turns, isRunning, send, answer, retry, stop, clear, line, log };
}

/** The conversation as AG-UI has it: the client brings it along. As at the gateway, what failed or was stopped is not part of it. */
function messagesOf(turns: readonly TurnData[]): AguiMessage[] {
  return turns.flatMap(({ id, question, state }) => {
    if (state.status !== "closed" || state.reason === "cancelled") return [];
    return [{ id, role: "user", content: question }, { id: `${id}-answer`, role: "assistant", content: wellFormed(state.text) }];
  });
}

/** Half of a character can be told in JSON, and nobody has to take it back. */
function wellFormed(text: string): string {
  return text.replace(/\p{Surrogate}/gu, "\ufffd");
}

function markNotice(log: Log, notice: Notice): void {
  const label = describeNotice(notice);
  switch (notice.type) {
    case "connected":
      return log.mark("connect", label);
    case "resumed":
      return log.mark("resume", `resumed after ${notice.cursor.split(":")[1] ?? notice.cursor}`);
    case "retrying":
      return log.mark("retry", `back in ${(notice.wait / 1000).toFixed(1)} s: ${notice.because}`);
    case "duplicate":
      return log.mark("repeat", label);
    case "attempt_failed":
      return log.mark("retry", label);
    case "gap":
      return log.mark("error", label);
    case "connecting":
    case "warning":
      return;
  }
}
