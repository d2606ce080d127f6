// Light or dark: the system's choice, until a person has another.
import { useEffect, useState } from "react";

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

function initial(): Theme {
  const stored = localStorage.getItem(STORED);
  if (stored === "light" || stored === "dark") return stored;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}
