// The open conversation: its turns and its open run, in any face, over a connection that the user
// can break.
import {
  CapClient,
  describeNotice,
  type Envelope,
  newId,
  type Notice,
  parseAGUIError,
  type ResumeEntry,
  type StreamPacket,
} from "capstan";
import { useAGUIErrorHandler, useCapStream } from "capstan/react";
import { useCallback, useEffect, useEffectEvent, useMemo, useRef, useState } from "react";

import { authorization } from "./authorization.js";
import type { Conversation } from "./conversations.js";
import type { Message } from "./face-run.js";
import type { Face } from "./faces.js";
import { Line } from "./line.js";
import { Log, type Mark } from "./log.js";
import type { TurnData } from "./show/Turn.js";
import { useFaceStream } from "./use-face-stream.js";

/**
 * The longest wait that the client waits itself. For longer waits the page counts down, and the
 * user decides. A gateway that shuts down asks for a second.
 */
const MAX_WAIT = 1_500;

export interface Setup {
  agent: string;
  face: Face;
  apiKey: string;
  /** Its state when it was opened. */
  before: Conversation;
  /** Stores changes of the conversation. */
  onKeep: (changed: Omit<Conversation, "id" | "name">) => void;
}

export function useConversation({ agent, face, apiKey, before, onKeep }: Setup) {
  const log = useMemo(() => new Log(), []);
  const line = useMemo(
    () =>
      new Line({
        onCut: () => log.mark("cut", "you cut the connection"),
        onFrame: (lines) => log.frame(lines),
        onServed: (by) => log.served(by),
      }),
    [log],
  );
  const [past, setPast] = useState(before.past);
  const [current, setCurrent] = useState<Running | null>(before.current);
  const [{ session, isRewritten }, setPlace] = useState({
    session: before.session,
    isRewritten: before.isRewritten,
  });
  const resend = useRef<() => void>(() => {});

  const { handleError, dismiss } = useAGUIErrorHandler({
    onRetry: () => resend.current(),
  });
  const base = `${location.origin}/v1`;
  const route = agent === "" ? "" : `/agents/${encodeURIComponent(agent)}`;
  // The answer shows warnings, so they are not logged as well.
  const client = useMemo(
    () =>
      new CapClient(base, apiKey, {
        fetch: line.fetch,
        path: `${route}/assist`,
        maxWait: MAX_WAIT,
        warn: () => {},
      }),
    [apiKey, base, line, route],
  );

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
  const onPacket = (packet: StreamPacket) =>
    onMark(packet.op.toLowerCase() as "delta", `${packet.op} ${packet.seq}`);
  const cap = useCapStream(client, { onPacket, onNotice, onError });
  const stopRun = useCallback((streamId: string) => client.stop(streamId), [client]);
  const other = useFaceStream(
    {
      base,
      agent,
      headers: authorization(apiKey),
      fetch: line.fetch,
      maxWait: MAX_WAIT,
      onMark,
      onNotice,
      onError,
    },
    stopRun,
  );

  const stream = (current?.face ?? face) === "cap" ? cap : other;
  const isRunning =
    current !== null && (stream.state.status === "streaming" || stream.state.status === "retrying");
  const turn = current && {
    id: current.id,
    question: current.question,
    isAnswer: current.isAnswer,
    state: stream.state,
  };
  const turns = turn ? [...past, turn] : past;

  /** After a reload, resumes the run that was open. */
  const comeBack = useEffectEvent(() => {
    const run = before.current;
    if (!run) return;
    log.begin();
    if (run.face === "cap") cap.attach(run.streamId);
    else other.begin(run.face, { conversationId: session, messages: [], streamId: run.streamId });
  });
  useEffect(() => {
    comeBack();
    // Toasts of this conversation are removed when another one is opened.
    return () => dismiss();
  }, [dismiss]);

  const streamId = stream.state.status === "idle" ? undefined : stream.state.streamId;
  const isOver = stream.state.status === "closed";
  const keep = useEffectEvent(() => {
    const running = current && streamId !== undefined && !isOver ? { ...current, streamId } : null;
    onKeep({ session, isRewritten, face, agent, past: isOver ? turns : past, current: running });
  });
  useEffect(() => {
    keep();
  }, [agent, current, face, isOver, isRewritten, past, session, streamId]);

  const begin = (running: Omit<Running, "face">, earlier: readonly TurnData[]) => {
    setPast(earlier);
    dismiss();
    log.begin();
    setCurrent({ ...running, face });
    (face === "cap" ? other : cap).reset();
  };
  /**
   * Sends a question after these turns. If turns were removed, the request has the whole
   * conversation and a new session.
   */
  const ask = (
    question: string,
    earlier: readonly TurnData[],
    isRewritten: boolean,
    conversationId: string,
  ) => {
    const id = newId();
    const messages: Message[] = [...messagesOf(earlier), { id, role: "user", content: question }];
    setPlace({ session: conversationId, isRewritten });
    begin({ id, question }, earlier);
    if (face !== "cap") other.begin(face, { conversationId, messages, isWhole: isRewritten });
    else if (isRewritten)
      cap.assist(withMessages(client.question(conversationId, question), messages), conversationId);
    else cap.send(question, conversationId);
  };
  const send = (question: string) =>
    ask(question, turns, isRewritten, isRewritten ? newId() : session);
  /** Removes a turn and all later ones, and sends a question in its place. */
  const rewrite = (id: string, question: string) => {
    const earlier = turns.slice(
      0,
      turns.findIndex((turn) => turn.id === id),
    );
    ask(question, earlier, earlier.length > 0, newId());
  };
  const answer = (resume: readonly ResumeEntry[], text: string) => {
    begin({ id: newId(), question: text, isAnswer: true }, turns);
    if (face === "cap") cap.answer(resume, session);
    // Only the AI SDK's protocol needs the message that asked.
    else
      other.begin(face, {
        conversationId: session,
        messages: face === "ai-sdk" ? messagesOf(turns) : [],
        resume,
      });
  };
  resend.current = () => {
    dismiss();
    // A waiting run continues; after any other failure the question is sent again.
    if (!stream.retry()) send(turns.filter(({ isAnswer }) => !isAnswer).at(-1)?.question ?? "");
  };
  const retry = useCallback(() => resend.current(), []);
  const stop = () => void stream.stop().catch(handleError);
  return { turns, isRunning, send, rewrite, answer, retry, stop, line, log };
}

/** The open turn, or the last one. */
interface Running {
  id: string;
  question: string;
  /** The message answers a question of a run. */
  isAnswer?: boolean;
  face: Face;
}

/** Adds the whole conversation to a request, in place of the stored one. */
function withMessages(request: Envelope, messages: readonly Message[]): Envelope {
  const all = messages.map(({ role, content }) => ({ role, parts: [{ type: "text", content }] }));
  return { ...request, payload: { ...request.payload, payload: { messages: all } } } as Envelope;
}

/**
 * The conversation for faces whose clients send all of it. As in the gateway, failed and stopped
 * turns are left out.
 */
function messagesOf(turns: readonly TurnData[]): Message[] {
  return turns.flatMap(({ id, question, state }) => {
    if (state.status !== "closed" || state.reason === "cancelled") return [];
    return [
      { id, role: "user", content: question },
      { id: `${id}-answer`, role: "assistant", content: wellFormed(state.text) },
    ];
  });
}

/** Replaces lone surrogates, which JSON allows and servers may refuse. */
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
