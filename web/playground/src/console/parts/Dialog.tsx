// A modal dialog of the browser: the focus stays inside, and Escape closes it.
import { type ReactNode, useEffect, useRef } from "react";

interface Props {
  title: ReactNode;
  name: string;
  onClose: () => void;
  children: ReactNode;
}

export function Dialog({ title, name, onClose, children }: Props): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog ref={dialog} className="dialog console-dialog" aria-labelledby={name} onClose={onClose}>
      <h2 id={name}>{title}</h2>
      {children}
    </dialog>
  );
}
