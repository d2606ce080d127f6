// The selected packet, which scrubber, axis and frames share. The address contains it after it has
// stopped changing.
import { useEffect, useState } from "react";

import { navigate } from "../router.js";
import { withQuery } from "../url.js";

/**
 * The delay before the address changes, because browsers limit the rate of changes during a replay.
 */
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
