// The conversation: turns so far and the one that runs, in any face, over a line that can be broken.
import { CapClient, describeNotice, newId, type Notice, parseAGUIError, type ResumeEntry, type StreamPacket } from "capstan";
import { useAGUIErrorHandler, useCapStream } from "capstan/react";
import { useCallback, useEffect, useEffectEvent, useMemo, useRef, useState } from "react";

import { authorization } from "./authorization.js";
import type { Message } from "./face-run.js";
import type { Face } from "./faces.js";
import * as kept from "./kept.js";
import { Line } from "./line.js";
import { Log, type Mark } from "./log.js";
import type { TurnData } from "./show/Turn.js";
import { useFaceStream } from "./use-face-stream.js";

/** Longer waits are not slept through: the page counts down, and a person decides. A gateway that leaves asks for a second. */
const MAX_WAIT = 1_500;

export interface Setup {
  agent: string;
  face: Face;
  apiKey: string;
}

export function useConversation({ agent, face, apiKey }: Setup) {
  const log = useMemo(() => new Log(), []);
  const line = useMemo(() => new Line({ onCut: () => log.mark("cut", "you cut the connection"), onFrame: (lines) => log.frame(lines), onServed: (by) => log.served(by) }), [log]);
  const before = useMemo(() => kept.load(), []);
  const [past, setPast] = useState<readonly TurnData[]>(before?.past ?? []);
  const [current, setCurrent] = useState<{ id: string; question: string; face: Face } | null>(before?.current ?? null);
  const conversation = useRef(before?.conversation ?? newId());
  const last = useRef(before?.current?.question ?? "");
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
  const onMark = (kind: Mark["kind"], label: string) => {
    log.mark(kind, label);
    if (kind === "close") line.rest();
  };
  const onPacket = (packet: StreamPacket) => onMark(packet.op.toLowerCase() as "delta", `${packet.op} ${packet.seq}`);
  const cap = useCapStream(client, { onPacket, onNotice, onError });
  const stopRun = useCallback((streamId: string) => client.stop(streamId), [client]);
  const other = useFaceStream({ base, agent, headers: authorization(apiKey), fetch: line.fetch, maxWait: MAX_WAIT, onMark, onNotice, onError }, stopRun);

  const stream = (current?.face ?? face) === "cap" ? cap : other;
  const isRunning = current !== null && (stream.state.status === "streaming" || stream.state.status === "retrying");
  const turn = current && { id: current.id, question: current.question, state: stream.state };

  const turns = turn ? [...past, turn] : past;

  /** A reload finds the run that was under way. */
  const comeBack = useEffectEvent(() => {
    const run = before?.current;
    if (!run) return;
    log.begin();
    if (run.face === "cap") cap.attach(run.streamId);
    else other.begin(run.face, { conversationId: conversation.current, messages: [], streamId: run.streamId });
  });
  useEffect(() => {
    comeBack();
  }, []);

  const streamId = stream.state.status === "idle" ? undefined : stream.state.streamId;
  useEffect(() => {
    kept.save({ conversation: conversation.current, face, agent, past, current: current && streamId !== undefined ? { ...current, streamId } : null });
  }, [agent, current, face, past, streamId]);

  const begin = (question: string): string => {
    const id = newId();
    setPast(turns);
    dismiss();
    log.begin();
    setCurrent({ id, question, face });
    (face === "cap" ? other : cap).reset();
    return id;
  };
  const send = (question: string) => {
    const id = begin(question);
    last.current = question;
    if (face === "cap") cap.send(question, conversation.current);
    else other.begin(face, { conversationId: conversation.current, messages: [...messagesOf(turns), { id, role: "user", content: question }] });
  };
  const answer = (resume: readonly ResumeEntry[], said: string) => {
    begin(said);
    if (face === "cap") cap.answer(resume, conversation.current);
    // Only the AI SDK wants to see the message that asked.
    else other.begin(face, { conversationId: conversation.current, messages: face === "ai-sdk" ? messagesOf(turns) : [], resume });
  };
  resend.current = () => {
    dismiss();
    // A run that waits for its client goes on; any other failure needs a new question.
    if (!stream.retry()) send(last.current);
  };
  const clear = () => {
    cap.reset();
    other.reset();
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

/** The conversation for faces whose clients bring it along. As at the gateway, what failed or was stopped is not part of it. */
function messagesOf(turns: readonly TurnData[]): Message[] {
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
