// The page: a conversation, with the controls to break the connection and the log of events.
import { type ReactNode, useEffect, useRef, useState } from "react";

import { type Conversations, type Stored } from "./conversations.js";
import { useLog } from "./log.js";
import type { Trouble } from "./line.js";
import { BreakBar } from "./parts/BreakBar.js";
import { Composer } from "./parts/Composer.js";
import { Frames } from "./parts/Frames.js";
import { Header } from "./parts/Header.js";
import { Timeline } from "./parts/Timeline.js";
import { Boundary } from "./show/Boundary.js";
import { Raw } from "./show/Raw.js";
import { Turn, type TurnData } from "./show/Turn.js";
import { Button } from "./ui/Button.js";
import type { Agents } from "./use-agents.js";
import { useConversation } from "./use-conversation.js";

const TRY = [
  "What is a capstan?",
  "/events",
  "/flaky 1",
  "/diverge",
  "/ask",
  "/tokens 200 --delay 30ms",
];

interface Props {
  stored: Stored;
  conversations: Conversations;
  agents: Agents;
  hasConsole: boolean;
  theme: "light" | "dark";
  onTheme: () => void;
  onKey: () => void;
  trouble: Trouble;
  onTrouble: (trouble: Trouble) => void;
}

export function Page({
  stored,
  conversations,
  agents,
  hasConsole,
  trouble,
  onTrouble,
  ...rest
}: Props): ReactNode {
  const [before] = useState(stored.open);
  const [agent, setAgent] = useState(before.agent);
  const [face, setFace] = useState(before.face);
  const box = useRef<HTMLTextAreaElement>(null);
  const end = useRef<HTMLDivElement>(null);
  const chat = useConversation({
    agent,
    face,
    apiKey: agents.key,
    before,
    onKeep: (changed) => conversations.keep(before.id, changed),
  });
  const view = useLog(chat.log);
  chat.line.trouble = trouble;

  const last = chat.turns.at(-1);
  useEffect(() => {
    end.current?.scrollIntoView({ block: "nearest" });
  }, [last?.state]);
  useEffect(() => {
    // On a phone the whole page scrolls, and the last conversation may have been scrolled down.
    if (before.past.length === 0) window.scrollTo(0, 0);
  }, [before]);
  const moreOf = ({ state }: TurnData) =>
    hasConsole && state.status !== "idle" && state.streamId
      ? `/console/runs/${state.streamId}`
      : undefined;

  return (
    <>
      <Header
        {...rest}
        stored={stored}
        conversations={conversations}
        agents={agents}
        hasConsole={hasConsole}
        agent={agent}
        onAgent={setAgent}
        face={face}
        onFace={setFace}
      />
      <main className="page">
        <section className="chat" aria-label="Conversation">
          <h2 className="sr-only">Conversation</h2>
          <div className="turns">
            {chat.turns.length === 0 && <Welcome onTry={chat.send} />}
            {chat.turns.map((turn) => (
              <Boundary
                key={turn.id}
                of={turn.state}
                instead={
                  <Raw
                    title={`This answer could not be shown: ${turn.question}`}
                    value={turn.state}
                    isOpen
                  />
                }
              >
                <Turn
                  turn={turn}
                  onRetry={chat.retry}
                  onAnswer={chat.answer}
                  onRewrite={chat.isRunning || turn.isAnswer ? undefined : chat.rewrite}
                  isLast={turn === last}
                  more={moreOf(turn)}
                />
              </Boundary>
            ))}
            <div ref={end} />
          </div>
          <Composer
            box={box}
            isRunning={chat.isRunning}
            onSend={chat.send}
            onStop={chat.stop}
            onCut={() => chat.line.cut()}
          />
        </section>
        <aside className="side" aria-label="The line">
          <BreakBar
            isRunning={chat.isRunning}
            trouble={trouble}
            onTrouble={onTrouble}
            onCut={() => chat.line.cut()}
            onFault={chat.send}
          />
          <Boundary
            of={view}
            instead={<p className="panel muted">The timeline could not be shown.</p>}
          >
            <Timeline view={view} />
          </Boundary>
          <Boundary
            of={view}
            instead={<p className="panel muted">The frames could not be shown.</p>}
          >
            <Frames frames={view.frames} />
          </Boundary>
        </aside>
      </main>
    </>
  );
}

function Welcome({ onTry }: { onTry: (message: string) => void }): ReactNode {
  return (
    <div className="welcome">
      <h2>Cut the line. The answer heals.</h2>
      <p className="muted">
        Ask something, then cut the connection while the answer comes. The page comes back with its
        cursor, and every word arrives once.
      </p>
      <div className="row">
        {TRY.map((message) => (
          <Button key={message} size="small" onClick={() => onTry(message)}>
            {message}
          </Button>
        ))}
      </div>
    </div>
  );
}
