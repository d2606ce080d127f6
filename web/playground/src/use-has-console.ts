// Whether this address has a console that accepts this key. A gateway may serve its console at
// another address.
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
