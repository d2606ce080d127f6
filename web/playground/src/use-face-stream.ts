// Runs of any face except CAP as React state, in the form of useCapStream, so that the page works
// with all faces alike.
import type { CapStream, CapStreamState } from "capstan/react";
import { useEffect, useMemo, useRef, useState } from "react";

import type { FaceOptions, FaceRun, RunInput } from "./face-run.js";
import { type Face, FACES } from "./faces.js";

export interface FaceStream extends Pick<CapStream, "state" | "retry" | "stop" | "reset"> {
  /** Starts a run, or follows an existing one. */
  begin: (face: Exclude<Face, "cap">, input: RunInput) => void;
}

export function useFaceStream(
  options: FaceOptions,
  stopRun: (streamId: string) => Promise<void>,
): FaceStream {
  const [state, setState] = useState<CapStreamState>({ status: "idle" });
  const latest = useRef(options);
  const current = useRef<FaceRun | null>(null);
  useEffect(() => {
    latest.current = options;
  });
  useEffect(() => () => current.current?.end(), []);

  const actions = useMemo(
    () => ({
      begin: (face: Exclude<Face, "cap">, input: RunInput) => {
        current.current?.end();
        current.current = new FACES[face].Run(input, latest, setState);
        void current.current.follow();
      },
      retry: () => current.current?.again() ?? false,
      stop: async () => {
        const streamId = current.current?.streamId;
        if (streamId !== undefined) await stopRun(streamId);
      },
      reset: () => {
        current.current?.end();
        current.current = null;
        setState({ status: "idle" });
      },
    }),
    [stopRun],
  );
  return { state, ...actions };
}
