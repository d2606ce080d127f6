// Asks for a key if the gateway needs one. The key stays in this tab.
import { type ReactNode, useEffect, useRef } from "react";

import { Button } from "../ui/Button.js";
import { Icon } from "../ui/Icon.js";

interface Props {
  isOpen: boolean;
  /** The problem with the last key. */
  complaint: string | null;
  onKey: (key: string) => void;
  onClose: () => void;
}

export function KeyDialog({ isOpen, complaint, onKey, onClose }: Props): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (isOpen) dialog.current?.showModal();
    else dialog.current?.close();
  }, [isOpen]);
  return (
    <dialog ref={dialog} className="dialog" aria-labelledby="key-title" onClose={onClose}>
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          onKey(String(new FormData(event.currentTarget).get("key") ?? "").trim());
        }}
      >
        <h2 id="key-title">
          <Icon name="key" /> A key, please
        </h2>
        <p className="muted">
          This gateway serves tenants. The key is stored in this tab only.
        </p>
        <label className="field">
          <span className="field-label">Key</span>
          <input
            className="input"
            name="key"
            type="password"
            autoComplete="off"
            spellCheck={false}
            required
          />
        </label>
        {complaint && (
          <p className="complaint" role="alert">
            {complaint}
          </p>
        )}
        <div className="row">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary">
            Use it
          </Button>
        </div>
      </form>
    </dialog>
  );
}
