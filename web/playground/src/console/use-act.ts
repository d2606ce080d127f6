// Performs an action: shows that it is pending, and shows its failure.
import { useState } from "react";

export interface Act {
  state: "asked" | "acting" | "done";
  error: unknown;
  run: () => void;
}

export function useAct(act: () => Promise<unknown>, then: () => void): Act {
  const [state, setState] = useState<Act["state"]>("asked");
  const [error, setError] = useState<unknown>(undefined);
  const run = () => {
    setState("acting");
    setError(undefined);
    act().then(
      () => {
        setState("done");
        then();
      },
      (failure: unknown) => {
        setState("asked");
        setError(failure);
      },
    );
  };
  return { state, error, run };
}
