// The packet that is looked at: scrubber, axis and frames share it, and the address holds it once
// it rests.
import { useEffect, useState } from "react";

import { navigate } from "../router.js";
import { withQuery } from "../url.js";

/** A replay changes it with every frame; browsers refuse so many changes of an address. */
const REST = 400;

export function usePlace(): [number | undefined, (seq: number | undefined) => void] {
  const [at, setAt] = useState<number | undefined>(() => {
    const given = new URLSearchParams(location.search).get("at");
    return given !== null && /^\d{1,15}$/.test(given) ? Number(given) : undefined;
  });
  useEffect(() => {
    const timer = setTimeout(() => {
      const now = new URLSearchParams(location.search).get("at") ?? undefined;
      if (now !== at?.toString())
        navigate(withQuery(location.pathname, location.search, { at: at?.toString() }), {
          replace: true,
        });
    }, REST);
    return () => clearTimeout(timer);
  }, [at]);
  return [at, setAt];
}
