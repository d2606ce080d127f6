// The frames of a run, read piece by piece and only as far as somebody looks.
import { useEffect, useState } from "react";

import type { Face } from "../api/api.js";
import { useConsole } from "../context.js";
import { read as readPiece, Tape } from "./tape.js";

/** Packets of one piece: few requests, and something to see soon. */
const PIECE = 2_000;
/** A tab holds no more; the rest is a curl away. */
export const MOST = 200_000;

export interface Frames {
  tape: Tape;
  /**
   * What kinds there are among them, noted as they come: to look through all of them with every
   * piece would be felt.
   */
  names: ReadonlySet<string>;
  /** All that there is so far has been read. */
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

/** `last`: the run's last packet, as far as is known. Nothing is asked for unless it is wanted. */
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
        // Nothing beyond means that this is all there is for now.
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
