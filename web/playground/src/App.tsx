// The page: a conversation, and beside it the ways to break it and what happened.
import { type ReactNode, useEffect, useRef, useState } from "react";
import { Toaster } from "sonner";

import { type Face, FACES } from "./faces.js";
import { load } from "./kept.js";
import { useLog } from "./log.js";
import { BreakBar } from "./parts/BreakBar.js";
import { Composer } from "./parts/Composer.js";
import { Frames } from "./parts/Frames.js";
import { KeyDialog } from "./parts/KeyDialog.js";
import { Timeline } from "./parts/Timeline.js";
import { Boundary } from "./show/Boundary.js";
import { Raw } from "./show/Raw.js";
import { Turn } from "./show/Turn.js";
import { Button } from "./ui/Button.js";
import { Icon } from "./ui/Icon.js";
import { Logo } from "./ui/Logo.js";
import { Select } from "./ui/Select.js";
import { useAgents } from "./use-agents.js";
import { useConsoleLink } from "./use-console-link.js";
import { useConversation } from "./use-conversation.js";
import { useTheme } from "./use-theme.js";

const TRY = ["What is a capstan?", "/events", "/flaky 1", "/diverge", "/ask", "/tokens 200 --delay 30ms"];

/** A toast covers the conversation, never the header. */
const BELOW_HEADER = { top: 72 };

export function App(): ReactNode {
  const [theme, toggleTheme] = useTheme();
  const agents = useAgents();
  const [agent, setAgent] = useState(() => load()?.agent ?? "");
  const [face, setFace] = useState<Face>(() => load()?.face ?? "cap");
  const [isAsking, setAsking] = useState(false);
  const [trouble, setTrouble] = useState({ cutEvery: 0, isForgetful: false });
  const box = useRef<HTMLTextAreaElement>(null);
  const end = useRef<HTMLDivElement>(null);
  const chat = useConversation({ agent, face, apiKey: agents.key });
  const view = useLog(chat.log);
  const linkOf = useConsoleLink(agents);
  chat.line.trouble = trouble;

  useEffect(() => {
    setAsking(agents.complaint !== null);
  }, [agents.complaint]);
  const last = chat.turns.at(-1)?.state;
  useEffect(() => {
    end.current?.scrollIntoView({ block: "nearest" });
  }, [last]);

  const startOver = () => {
    chat.clear();
    // On a phone the whole page scrolls, and it was far down.
    window.scrollTo(0, 0);
  };

  return (
    <>
      <header className="header">
        <h1><Logo /> Capstan</h1>
        <div className="row">
          <a className="button button-ghost docs" href="/docs" target="_blank" rel="noopener"><Icon name="book" /> Docs</a>
          <Select label="Agent" isQuiet value={agent} onChange={(event) => setAgent(event.target.value)}>
            {agents.names.length === 0 && <option value="">default</option>}
            {agents.names.map((name, n) => <option key={name} value={n === 0 ? "" : name}>{name}</option>)}
          </Select>
          <Select label="Face" isQuiet value={face} onChange={(event) => setFace(event.target.value as Face)}>
            {Object.entries(FACES).map(([name, { label }]) => <option key={name} value={name}>{label}</option>)}
          </Select>
          <Button size="icon" look="ghost" aria-label="New conversation" onClick={startOver}><Icon name="plus" /></Button>
          {(agents.key !== "" || agents.complaint !== null) && <Button size="icon" look="ghost" aria-label="Key" onClick={() => setAsking(true)}><Icon name="key" /></Button>}
          <Button size="icon" look="ghost" aria-label={theme === "dark" ? "Light theme" : "Dark theme"} onClick={toggleTheme}><Icon name={theme === "dark" ? "sun" : "moon"} /></Button>
        </div>
      </header>
      <main className="page">
        <section className="chat" aria-label="Conversation">
          <div className="turns">
            {chat.turns.length === 0 && <Welcome onTry={chat.send} />}
            {chat.turns.map((turn) => (
              <Boundary key={turn.id} of={turn.state} instead={<Raw title={`This answer could not be shown: ${turn.question}`} value={turn.state} isOpen />}>
                <Turn turn={turn} onRetry={chat.retry} onAnswer={chat.answer} more={linkOf(turn.state)} />
              </Boundary>
            ))}
            <div ref={end} />
          </div>
          <Composer box={box} isRunning={chat.isRunning} onSend={chat.send} onStop={chat.stop} onCut={() => chat.line.cut()} />
        </section>
        <aside className="side" aria-label="The line">
          <BreakBar isRunning={chat.isRunning} trouble={trouble} onTrouble={setTrouble} onCut={() => chat.line.cut()} onFault={chat.send} />
          <Boundary of={view} instead={<p className="panel muted">The timeline could not be shown.</p>}><Timeline view={view} /></Boundary>
          <Boundary of={view} instead={<p className="panel muted">The frames could not be shown.</p>}><Frames frames={view.frames} /></Boundary>
        </aside>
      </main>
      <KeyDialog isOpen={isAsking} complaint={agents.key === "" ? null : agents.complaint} onKey={(key) => { agents.setKey(key); setAsking(false); }} onClose={() => setAsking(false)} />
      <Toaster theme={theme} richColors position="top-center" offset={BELOW_HEADER} mobileOffset={BELOW_HEADER} closeButton />
    </>
  );
}

function Welcome({ onTry }: { onTry: (message: string) => void }): ReactNode {
  return (
    <div className="welcome">
      <h2>Cut the line. The answer heals.</h2>
      <p className="muted">
        Ask something, then cut the connection while the answer comes. The page comes back with its cursor, and every word arrives once.
      </p>
      <div className="row">{TRY.map((message) => <Button key={message} size="small" onClick={() => onTry(message)}>{message}</Button>)}</div>
    </div>
  );
}
