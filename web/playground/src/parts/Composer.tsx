// The input field. Enter sends, Shift+Enter begins a line.
import { type ReactNode, type RefObject, useState } from "react";

import { Button } from "../ui/Button.js";
import { Icon } from "../ui/Icon.js";

interface Props {
  box: RefObject<HTMLTextAreaElement | null>;
  isRunning: boolean;
  onSend: (message: string) => void;
  onStop: () => void;
  onCut: () => void;
}

export function Composer({ box, isRunning, onSend, onStop, onCut }: Props): ReactNode {
  const [text, setText] = useState("");
  const send = () => {
    if (isRunning || text.trim() === "") return;
    onSend(text.trim());
    setText("");
  };
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        ref={box}
        aria-label="Message"
        dir="auto"
        placeholder="Ask anything, or /help"
        rows={1}
        autoFocus
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
          event.preventDefault();
          send();
        }}
      />
      {isRunning ? (
        <>
          {/* On a narrow screen the bar to break it is out of sight while the answer comes. */}
          <Button
            look="destructive"
            size="icon"
            className="only-narrow"
            onClick={onCut}
            aria-label="Cut my connection"
          >
            <Icon name="cut" />
          </Button>
          <Button look="outline" size="icon" onClick={onStop} aria-label="Stop">
            <Icon name="stop" />
          </Button>
        </>
      ) : (
        <Button
          type="submit"
          look="primary"
          size="icon"
          aria-label="Send"
          aria-disabled={text.trim() === ""}
        >
          <Icon name="send" />
        </Button>
      )}
    </form>
  );
}
