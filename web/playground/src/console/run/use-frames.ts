// The frames of a run, read piece by piece and only as far as somebody looks.
import { useEffect, useState } from "react";

import type { Face } from "../api/api.js";
import { useConsole } from "../context.js";
import { framesOf, nameOf, type SentFrame } from "./packets.js";

/** Packets of one piece: as many as a slow machine reads without a hitch. */
const PIECE = 500;
/** A tab holds no more; the rest is a curl away. */
export const MOST = 200_000;

export interface Frames {
  frames: readonly SentFrame[];
  /** What kinds there are among them, noted as they come: to look through all of them with every piece would be felt. */
  names: ReadonlySet<string>;
  /** All that there is so far has been read. */
  isWhole: boolean;
  error: unknown;
  again: () => void;
}

const NONE = { frames: [] as readonly SentFrame[], names: new Set() as ReadonlySet<string>, read: 0, error: undefined as unknown };

/** `last`: the run's last packet, as far as is known. Nothing is asked for unless it is wanted. */
export function useFrames(id: string, face: Face, last: number, isWanted: boolean): Frames {
  const { api } = useConsole();
  const name = `${id} ${face}`;
  const [found, setFound] = useState({ name, ...NONE });
  const [round, setRound] = useState(0);
  const { frames, names, read, error } = found.name === name ? found : NONE;
  const isWhole = read >= Math.min(last, MOST);

  useEffect(() => {
    if (!isWanted || isWhole || error !== undefined) return;
    const left = new AbortController();
    const to = Math.min(read + PIECE, MOST);
    api
      .frames(id, { face, from: read + 1, to }, left.signal)
      .then((response) => response.text())
      .then((text) => {
        if (left.signal.aborted) return;
        const piece = framesOf(text, face).filter(({ seq }) => seq > read);
        // Nothing beyond means that this is all there is for now.
        const reached = Math.max(read, piece.at(-1)?.seq ?? 0, to <= last ? to : last);
        setFound((before) => ({ name, ...grown(before.name === name ? before : NONE, piece), read: reached, error: undefined }));
      })
      .catch((failure: unknown) => {
        if (!left.signal.aborted) setFound((before) => ({ ...(before.name === name ? before : { ...NONE }), name, error: failure }));
      });
    return () => left.abort();
  }, [api, error, face, id, isWanted, isWhole, last, name, read, round]);

  const again = () => {
    setFound((before) => ({ ...before, error: undefined }));
    setRound((before) => before + 1);
  };
  return { frames, names, isWhole, error, again };
}

function grown({ frames, names }: Pick<Frames, "frames" | "names">, piece: readonly SentFrame[]): Pick<Frames, "frames" | "names"> {
  const fresh = piece.map(nameOf).filter((name) => !names.has(name));
  return { frames: frames.concat(piece), names: fresh.length === 0 ? names : new Set([...names, ...fresh]) };
}
