// Tabs by the WAI-ARIA rules: arrow keys move between them, and only the selected one is in the tab
// order.
import type { KeyboardEvent, ReactNode } from "react";

interface Props<T extends string> {
  tabs: readonly (readonly [T, string])[];
  chosen: T;
  onChoose: (tab: T) => void;
}

export function Tabs<T extends string>({ tabs, chosen, onChoose }: Props<T>): ReactNode {
  const step = (event: KeyboardEvent<HTMLDivElement>) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    const next =
      tabs[(tabs.findIndex(([tab]) => tab === chosen) + by + tabs.length) % tabs.length]![0];
    onChoose(next);
    event.currentTarget.querySelector<HTMLElement>(`#tab-${next}`)?.focus();
  };
  return (
    <div className="tabs" role="tablist" aria-label="About this run" onKeyDown={step}>
      {tabs.map(([tab, label]) => (
        <button
          key={tab}
          id={`tab-${tab}`}
          type="button"
          role="tab"
          className="tab"
          aria-selected={tab === chosen}
          aria-controls="tab-panel"
          tabIndex={tab === chosen ? 0 : -1}
          onClick={() => onChoose(tab)}
        >
          {label}
        </button>
      ))}
    </div>
  );
}
