// The conversations of this tab: open, rename and delete them.
import { type ReactNode, useEffect, useRef, useState } from "react";

import {
  type Conversation,
  type Conversations,
  LONGEST_NAME,
  nameOf,
  type Stored,
} from "../conversations.js";
import { Button } from "../ui/Button.js";
import { Icon } from "../ui/Icon.js";

interface Props {
  isOpen: boolean;
  stored: Stored;
  conversations: Conversations;
  onClose: () => void;
}

export function ConversationsDialog({ isOpen, stored, conversations, onClose }: Props): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (isOpen) dialog.current?.showModal();
    else dialog.current?.close();
  }, [isOpen]);
  return (
    <dialog ref={dialog} className="dialog" aria-labelledby="conversations-title" onClose={onClose}>
      <h2 id="conversations-title">
        <Icon name="list" /> Conversations
      </h2>
      <p className="muted">They are stored in this tab only.</p>
      <ul className="conversations">
        {isOpen &&
          stored.all.map((one) => (
            <Row
              key={one.id}
              one={one}
              isOpen={one.id === stored.open.id}
              conversations={conversations}
            />
          ))}
      </ul>
      <div className="row">
        <Button onClick={onClose}>Close</Button>
        <Button look="primary" onClick={() => conversations.begin()}>
          New
        </Button>
      </div>
    </dialog>
  );
}

interface RowProps {
  one: Conversation;
  isOpen: boolean;
  conversations: Conversations;
}

function Row({ one, isOpen, conversations }: RowProps): ReactNode {
  const [isNaming, setNaming] = useState(false);
  const name = nameOf(one);
  const rename = (to: string) => {
    conversations.rename(one.id, to);
    setNaming(false);
  };
  if (isNaming)
    return (
      <li>
        <Naming name={name} onName={rename} onCancel={() => setNaming(false)} />
      </li>
    );
  return (
    <li>
      <button
        type="button"
        className="conversation"
        dir="auto"
        aria-current={isOpen ? "true" : undefined}
        onClick={() => conversations.open(one.id)}
      >
        {name}
      </button>
      <Button
        size="icon"
        look="ghost"
        aria-label={`Rename ${name}`}
        onClick={() => setNaming(true)}
      >
        <Icon name="pen" />
      </Button>
      <Button
        size="icon"
        look="ghost"
        aria-label={`Delete ${name}`}
        onClick={() => conversations.remove(one.id)}
      >
        <Icon name="trash" />
      </Button>
    </li>
  );
}

interface NamingProps {
  name: string;
  onName: (name: string) => void;
  onCancel: () => void;
}

/** Escape keeps the old name, and the dialog stays open. */
function Naming({ name, onName, onCancel }: NamingProps): ReactNode {
  return (
    <form
      className="naming"
      onSubmit={(event) => {
        event.preventDefault();
        onName(String(new FormData(event.currentTarget).get("name") ?? ""));
      }}
    >
      <input
        className="input"
        name="name"
        aria-label="Name"
        dir="auto"
        autoFocus
        defaultValue={name}
        maxLength={LONGEST_NAME}
        autoComplete="off"
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.preventDefault();
          onCancel();
        }}
      />
      <Button type="submit" size="small">
        Rename
      </Button>
    </form>
  );
}
