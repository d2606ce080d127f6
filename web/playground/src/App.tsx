// The state that all conversations share: theme, agents, toasts. One conversation is open.
import { type ReactNode, useEffect, useState } from "react";
import { Toaster } from "sonner";

import { Conversations, useConversations } from "./conversations.js";
import { Page } from "./Page.js";
import { KeyDialog } from "./parts/KeyDialog.js";
import { useAgents } from "./use-agents.js";
import { useHasConsole } from "./use-has-console.js";
import { useTheme } from "./use-theme.js";

/** Toasts are below the header, which has two lines on a phone. */
const BELOW_HEADER = { top: 72 };
const BELOW_HEADER_OF_PHONE = { top: 116 };

export function App(): ReactNode {
  const [theme, toggleTheme] = useTheme();
  const [conversations] = useState(() => new Conversations());
  const stored = useConversations(conversations);
  const agents = useAgents();
  const hasConsole = useHasConsole(agents);
  const [isAsking, setAsking] = useState(false);
  const [trouble, setTrouble] = useState({ cutEvery: 0, isForgetful: false });

  useEffect(() => {
    setAsking(agents.complaint !== null);
  }, [agents.complaint]);
  const use = (key: string) => {
    agents.setKey(key);
    setAsking(false);
  };

  return (
    <>
      <Page
        key={stored.open.id}
        stored={stored}
        conversations={conversations}
        agents={agents}
        hasConsole={hasConsole}
        theme={theme}
        onTheme={toggleTheme}
        onKey={() => setAsking(true)}
        trouble={trouble}
        onTrouble={setTrouble}
      />
      <KeyDialog
        isOpen={isAsking}
        complaint={agents.key === "" ? null : agents.complaint}
        onKey={use}
        onClose={() => setAsking(false)}
      />
      <Toaster
        theme={theme}
        richColors
        position="top-center"
        offset={BELOW_HEADER}
        mobileOffset={BELOW_HEADER_OF_PHONE}
        closeButton
      />
    </>
  );
}
