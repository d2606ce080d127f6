// The user's question. It can be copied, and edited if it can be sent again.
import { type ReactNode, useState } from "react";

import { Button } from "../ui/Button.js";
import { CopyButton } from "../ui/Copy.js";
import { Icon } from "../ui/Icon.js";

interface Props {
  text: string;
  onEdit?: ((text: string) => void) | undefined;
}

export function Question({ text, onEdit }: Props): ReactNode {
  const [isEditing, setEditing] = useState(false);
  const edit = (to: string) => {
    setEditing(false);
    onEdit?.(to);
  };
  if (isEditing && onEdit)
    return <Editor text={text} onEdit={edit} onCancel={() => setEditing(false)} />;
  return (
    <div className="asked">
      <p className="question" dir="auto">
        {text}
      </p>
      <div className="asked-tools">
        <CopyButton text={text} label="message" />
        {onEdit && (
          <Button
            size="icon"
            look="ghost"
            className="copy"
            aria-label="Edit message"
            title="Edit message"
            onClick={() => setEditing(true)}
          >
            <Icon name="pen" />
          </Button>
        )}
      </div>
    </div>
  );
}

interface EditorProps {
  text: string;
  onEdit: (text: string) => void;
  onCancel: () => void;
}

/** As in the composer: Enter sends, Shift+Enter begins a line. Escape cancels the edit. */
function Editor({ text, onEdit, onCancel }: EditorProps): ReactNode {
  const [changed, setChanged] = useState(text);
  const send = () => changed.trim() !== "" && onEdit(changed.trim());
  return (
    <form
      className="editor"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        className="input"
        aria-label="Edited message"
        dir="auto"
        autoFocus
        value={changed}
        onChange={(event) => setChanged(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") onCancel();
          if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
          event.preventDefault();
          send();
        }}
      />
      <div className="row">
        <Button size="small" onClick={onCancel}>
          Cancel
        </Button>
        <Button type="submit" size="small" look="primary">
          Ask again
        </Button>
      </div>
    </form>
  );
}
