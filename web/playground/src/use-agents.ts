// Loads the agents of the gateway, and finds out whether it needs a key.
import { parseAGUIError } from "capstan";
import { useEffect, useState } from "react";

import { authorization, keepKey, storedKey } from "./authorization.js";

export interface Agents {
  names: readonly string[];
  /** The gateway has answered, so the key is right if it needs one. */
  isKnown: boolean;
  key: string;
  setKey: (key: string) => void;
  /** Why a key is needed. */
  complaint: string | null;
}

export function useAgents(): Agents {
  const [key, setKey] = useState(storedKey);
  const [names, setNames] = useState<readonly string[]>([]);
  const [complaint, setComplaint] = useState<string | null>(null);
  const [isKnown, setKnown] = useState(false);

  useEffect(() => {
    const left = new AbortController();
    load(key, left.signal)
      .then((found) => {
        setNames(found);
        setKnown(true);
        setComplaint(null);
      })
      .catch(
        (error: unknown) =>
          left.signal.aborted ||
          setComplaint(error instanceof Error ? error.message : String(error)),
      );
    return () => left.abort();
  }, [key]);

  const keep = (next: string) => {
    keepKey(next);
    setComplaint(null);
    setKnown(false);
    setKey(next);
  };
  return { names, isKnown, key, setKey: keep, complaint };
}

async function load(key: string, signal: AbortSignal): Promise<string[]> {
  const response = await fetch("/v1/agents", { signal, headers: authorization(key) });
  if (response.status === 401 || response.status === 403) {
    throw new Error(parseAGUIError(await response.text())?.message ?? "The key was refused.");
  }
  // An older gateway has no list of agents. Its default agent answers.
  if (!response.ok) return [];
  const { agents } = (await response.json()) as { agents: { name: string }[] };
  return agents.map(({ name }) => name);
}
