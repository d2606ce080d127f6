// Shortcuts of single keys. They are off while the user types or a dialog is open, and the user can
// switch them off (WCAG 2.1.4).
import { useEffect, useRef } from "react";

const STORED = "capstan-shortcuts";
/** The longest time between the two keys of a sequence. */
const TOGETHER = 1_500;

export function areOn(): boolean {
  return localStorage.getItem(STORED) !== "off";
}

export function switchKeys(isOn: boolean): void {
  localStorage.setItem(STORED, isOn ? "on" : "off");
}

export type Shortcuts = Readonly<Record<string, () => void>>;

/** `{ "j": …, "g r": … }`. */
export function useShortcuts(shortcuts: Shortcuts): void {
  const latest = useRef(shortcuts);
  useEffect(() => {
    latest.current = shortcuts;
  });
  useEffect(() => {
    let before = { key: "", at: 0 };
    const listen = (event: KeyboardEvent) => {
      const isPair = event.timeStamp - before.at < TOGETHER;
      const pressed = chosen(event, isPair ? before.key : "", latest.current);
      before = { key: event.key, at: event.timeStamp };
      if (!pressed || !areOn() || isElsewhere(event)) return;
      event.preventDefault();
      pressed();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
}

function chosen(
  { key, ctrlKey, metaKey, altKey }: KeyboardEvent,
  before: string,
  shortcuts: Shortcuts,
): (() => void) | undefined {
  if (ctrlKey || metaKey || altKey) return undefined;
  // `g t` must not trigger `t`.
  return before === "g" && key !== "g" ? shortcuts[`g ${key}`] : shortcuts[key];
}

/** Whether the key has another meaning for the focused element. */
function isElsewhere({ target, key }: KeyboardEvent): boolean {
  if (!(target instanceof Element)) return false;
  if (document.querySelector("dialog[open]")) return true;
  // Letters have no meaning for a slider or a switch. The switch of a closed dialog may still have
  // the focus.
  if (
    target.closest("input:not([type=range], [type=checkbox]), textarea, select, [contenteditable]")
  )
    return true;
  return key === " " && target.closest("button, a, summary, input, [role=tab]") !== null;
}
