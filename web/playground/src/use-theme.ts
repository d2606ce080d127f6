// Light or dark: the system's setting, unless the user chose one.
import { useEffect, useState, useSyncExternalStore } from "react";

const STORED = "capstan-theme";
type Theme = "light" | "dark";

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(initial);
  useEffect(() => {
    document.documentElement.dataset["theme"] = theme;
  }, [theme]);
  const toggle = () => {
    const next = theme === "dark" ? "light" : "dark";
    localStorage.setItem(STORED, next);
    setTheme(next);
  };
  return [theme, toggle];
}

/** The present theme, for canvases. */
export function useShownTheme(): string {
  return useSyncExternalStore(watch, () => document.documentElement.dataset["theme"] ?? "");
}

function watch(changed: () => void): () => void {
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  return () => observer.disconnect();
}

function initial(): Theme {
  const stored = localStorage.getItem(STORED);
  if (stored === "light" || stored === "dark") return stored;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}
