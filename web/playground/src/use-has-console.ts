// Where the console shows a run; nothing unless there is a console that this key opens.
import type { CapStreamState } from "capstan/react";
import { useEffect, useState } from "react";

import { authorization } from "./authorization.js";
import type { Agents } from "./use-agents.js";

export function useConsoleLink({ key, isKnown }: Agents): (state: CapStreamState) => string | undefined {
  const [isThere, setThere] = useState(false);
  useEffect(() => {
    setThere(false);
    if (!isKnown) return;
    const left = new AbortController();
    fetch("/v1/console/me", { signal: left.signal, headers: authorization(key) }).then(
      ({ ok }) => setThere(ok),
      () => {},
    );
    return () => left.abort();
  }, [key, isKnown]);
  return (state) => (isThere && state.status !== "idle" && state.streamId ? `/console/runs/${state.streamId}` : undefined);
}
