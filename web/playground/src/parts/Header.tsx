// The head of the page: agent, face, conversation, and links.
import { type ReactNode, useState } from "react";

import type { Conversations, Stored } from "../conversations.js";
import { type Face, FACES } from "../faces.js";
import { Button } from "../ui/Button.js";
import { Icon, type IconName } from "../ui/Icon.js";
import { Logo } from "../ui/Logo.js";
import { Select } from "../ui/Select.js";
import type { Agents } from "../use-agents.js";
import { ConversationsDialog } from "./ConversationsDialog.js";

interface Props {
  stored: Stored;
  conversations: Conversations;
  agents: Agents;
  hasConsole: boolean;
  agent: string;
  onAgent: (agent: string) => void;
  face: Face;
  onFace: (face: Face) => void;
  theme: "light" | "dark";
  onTheme: () => void;
  onKey: () => void;
}

export function Header(props: Props): ReactNode {
  const { stored, conversations, agents, hasConsole, theme, onTheme, onKey } = props;
  const [isOpen, setOpen] = useState(false);
  const needsKey = agents.key !== "" || agents.complaint !== null;
  return (
    <>
      <header className="header">
        <h1>
          <Logo /> <span>Capstan</span>
        </h1>
        <Choices {...props} />
        <nav className="row" aria-label="Page">
          {hasConsole && (
            <Way href="/console" icon="server">
              Console
            </Way>
          )}
          <Way href="/docs" icon="book">
            Docs
          </Way>
          <Tool label="Conversations" icon="list" onClick={() => setOpen(true)} />
          <Tool label="New conversation" icon="plus" onClick={() => conversations.begin()} />
          {needsKey && <Tool label="Key" icon="key" onClick={onKey} />}
          <Tool
            label={theme === "dark" ? "Light theme" : "Dark theme"}
            icon={theme === "dark" ? "sun" : "moon"}
            onClick={onTheme}
          />
        </nav>
      </header>
      <ConversationsDialog
        isOpen={isOpen}
        stored={stored}
        conversations={conversations}
        onClose={() => setOpen(false)}
      />
    </>
  );
}

function Choices({ agents, agent, onAgent, face, onFace }: Props): ReactNode {
  return (
    <div className="row choices">
      <Select label="Agent" isQuiet value={agent} onChange={(event) => onAgent(event.target.value)}>
        {agents.names.length === 0 && <option value="">default</option>}
        {agents.names.map((name, n) => (
          <option key={name} value={n === 0 ? "" : name}>
            {name}
          </option>
        ))}
      </Select>
      <Select
        label="Face"
        isQuiet
        value={face}
        onChange={(event) => onFace(event.target.value as Face)}
      >
        {Object.entries(FACES).map(([name, { label }]) => (
          <option key={name} value={name}>
            {label}
          </option>
        ))}
      </Select>
    </div>
  );
}

function Way({
  href,
  icon,
  children,
}: {
  href: string;
  icon: IconName;
  children: string;
}): ReactNode {
  return (
    <a className="button button-ghost way" href={href} target="_blank" rel="noopener">
      <Icon name={icon} /> <span>{children}</span>
    </a>
  );
}

function Tool({
  label,
  icon,
  onClick,
}: {
  label: string;
  icon: IconName;
  onClick: () => void;
}): ReactNode {
  return (
    <Button size="icon" look="ghost" aria-label={label} title={label} onClick={onClick}>
      <Icon name={icon} />
    </Button>
  );
}
