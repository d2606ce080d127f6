// Loads the frames of a run in pieces, only as far as they are shown.
import { useEffect, useState } from "react";

import type { Face } from "../api/api.js";
import { useConsole } from "../context.js";
import { read as readPiece, Tape } from "./tape.js";

/** The packets of one piece: few requests, and quick results. */
const PIECE = 2_000;
/** The most packets in a tab. Use curl for more. */
export const MOST = 200_000;

export interface Frames {
  tape: Tape;
  /**
   * The kinds of frames, collected as they arrive. Searching all frames for each piece would be
   * slow.
   */
  names: ReadonlySet<string>;
  /** All existing frames were loaded. */
  isWhole: boolean;
  error: unknown;
  again: () => void;
}

const NONE = {
  tape: Tape.EMPTY,
  names: new Set() as ReadonlySet<string>,
  read: 0,
  error: undefined as unknown,
};

/** `last`: the run's last packet as far as known. Nothing is loaded unless `isWanted`. */
export function useFrames(id: string, face: Face, last: number, isWanted: boolean): Frames {
  const { api } = useConsole();
  const name = `${id} ${face}`;
  const [found, setFound] = useState({ name, ...NONE });
  const [round, setRound] = useState(0);
  const { tape, names, read, error } = found.name === name ? found : NONE;
  const isWhole = read >= Math.min(last, MOST);

  useEffect(() => {
    if (!isWanted || isWhole || error !== undefined) return;
    const left = new AbortController();
    const to = Math.min(read + PIECE, MOST);
    api
      .frames(id, { face, from: read + 1, to }, left.signal)
      .then((response) => response.text())
      .then((text) => readPiece(text, face, read))
      .then((piece) => {
        if (left.signal.aborted) return;
        // An empty piece means that there are no more frames for now.
        const reached = Math.max(read, piece.seqs.at(-1) ?? 0, to <= last ? to : last);
        setFound({
          name,
          tape: tape.with(piece),
          names: withNames(names, piece.names),
          read: reached,
          error: undefined,
        });
      })
      .catch((failure: unknown) => {
        if (!left.signal.aborted) setFound({ name, tape, names, read, error: failure });
      });
    return () => left.abort();
  }, [api, error, face, id, isWanted, isWhole, last, name, names, read, round, tape]);

  const again = () => {
    setFound((before) => ({ ...before, error: undefined }));
    setRound((before) => before + 1);
  };
  return { tape, names, isWhole, error, again };
}

function withNames(names: ReadonlySet<string>, more: readonly string[]): ReadonlySet<string> {
  const fresh = more.filter((name) => !names.has(name));
  return fresh.length === 0 ? names : new Set([...names, ...fresh]);
}
