// Whether there is a console at this address that this key opens. Where the gateway has it on
// addresses of its own, there is none at this one.
import { useEffect, useState } from "react";

import { authorization } from "./authorization.js";
import type { Agents } from "./use-agents.js";

export function useHasConsole({ key, isKnown }: Agents): boolean {
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
  return isThere;
}
