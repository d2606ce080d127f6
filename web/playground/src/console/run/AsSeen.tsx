// The answer as the user saw it, rendered by the playground's code, with a replay at its original
// speed.
import type { CapStreamState } from "capstan/react";
import { type KeyboardEvent, type ReactNode, useEffect, useMemo, useRef, useState } from "react";

import { Boundary } from "../../show/Boundary.js";
import { Raw } from "../../show/Raw.js";
import { Turn } from "../../show/Turn.js";
import { Button } from "../../ui/Button.js";
import { Icon } from "../../ui/Icon.js";
import { Switch } from "../../ui/Switch.js";
import { count, span } from "../format.js";
import { useShortcuts } from "../keys.js";
import { Fold, tailOf } from "./packets.js";
import {
  paced,
  played,
  type Replay,
  rested,
  RESTING,
  schedule,
  set,
  shownBy,
  SPEEDS,
  standing,
} from "./replay.js";
import type { Tape } from "./tape.js";

interface Props {
  question: string;
  tape: Tape;
  /** The selected packet; the last one if undefined. */
  at: number | undefined;
  onAt: (seq: number | undefined) => void;
}

/**
 * The longest text that is laid out by default, because a replay changes it sixty times a second.
 */
const LONGEST = 20_000;

export function AsSeen({ question, tape, at, onAt }: Props): ReactNode {
  const [skips, setSkips] = useState(true);
  const [isWhole, setWhole] = useState(false);
  const times = useMemo(() => schedule(tape.times(), skips), [tape, skips]);
  const place = at === undefined ? tape.length : tape.placeOf(at);
  const [replay, setReplay] = useReplay(times, place, (shown) => onAt(seqAt(tape, shown)));
  const isPlaying = replay.since !== undefined;
  const folded = useFold(tape, place);
  const { state, hidden } = useMemo(
    () => tailOf(folded, isWhole && !isPlaying ? Infinity : LONGEST),
    [folded, isWhole, isPlaying],
  );
  const turn = useMemo(() => ({ id: "run", question, state }), [question, state]);

  const go = (shown: number) => {
    const to = Math.min(tape.length, Math.max(0, shown));
    setReplay((before) => set(before, times[to - 1] ?? 0, performance.now()));
    onAt(to === tape.length ? undefined : seqAt(tape, to));
  };
  const toggle = () => {
    const now = performance.now();
    const start = place >= tape.length ? 0 : (times[place - 1] ?? 0);
    if (!isPlaying && place >= tape.length) onAt(0);
    setReplay((before) => (isPlaying ? rested(before, now) : played(set(before, start, now), now)));
  };
  useShortcuts({ " ": toggle });

  const page = (event: KeyboardEvent<HTMLInputElement>) => {
    const by = { PageUp: 1_000, PageDown: -1_000 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const moved = shownBy(times, (times[place - 1] ?? 0) + by);
    go(by > 0 ? Math.max(moved, place + 1) : moved);
  };
  return (
    <div className="seen">
      <div className="player" role="group" aria-label="Replay">
        <Button
          size="icon"
          look="primary"
          aria-label={isPlaying ? "Pause" : "Play"}
          onClick={toggle}
        >
          <Icon name={isPlaying ? "pause" : "play"} />
        </Button>
        <input
          type="range"
          aria-label="Packet"
          aria-valuetext={`packet ${place} of ${tape.length}, ${span(times[place - 1] ?? 0)}`}
          min={0}
          max={tape.length}
          value={place}
          onChange={(event) => go(Number(event.target.value))}
          onKeyDown={page}
        />
        <span className="player-place">
          {place} / {tape.length} · {span(times[place - 1] ?? 0)}
        </span>
        <span className="row" role="group" aria-label="Speed">
          {SPEEDS.map((speed) => (
            <Button
              key={speed}
              size="small"
              aria-pressed={replay.speed === speed}
              onClick={() => setReplay((before) => paced(before, speed, performance.now()))}
            >
              {speed}×
            </Button>
          ))}
        </span>
        <Switch label="Skip waits" isOn={skips} onChange={setSkips} />
      </div>
      {hidden > 0 && (
        <p className="muted">
          {count(hidden)} characters before this are folded.{" "}
          {!isPlaying && (
            <Button size="small" onClick={() => setWhole(true)}>
              Show them
            </Button>
          )}
        </p>
      )}
      <div className="content turns">
        <Boundary
          of={state}
          instead={<Raw title="This answer could not be shown" value={state} isOpen />}
        >
          <Turn turn={turn} />
        </Boundary>
      </div>
    </div>
  );
}

/** The packet of the last of `shown` frames. */
function seqAt(tape: Tape, shown: number): number {
  return shown > 0 && shown <= tape.length ? tape.seq(shown - 1) : 0;
}

/**
 * The state of a viewer at a position. A distant position takes a while; meanwhile the last state
 * is shown.
 */
function useFold(tape: Tape, place: number): CapStreamState {
  const [fold] = useState(() => new Fold());
  const [, setRound] = useState(0);
  const before = useRef<CapStreamState>({ status: "idle" });
  const near = useMemo(
    () => (fold.isNear(place) ? fold.upTo(tape, place) : undefined),
    [fold, tape, place],
  );
  useEffect(() => {
    if (near) {
      before.current = near;
      return;
    }
    const left = new AbortController();
    void fold.reach(tape, place, left.signal).then((state) => {
      if (!state) return;
      before.current = state;
      setRound((round) => round + 1);
    });
    return () => left.abort();
  }, [fold, near, tape, place]);
  return near ?? before.current;
}

/** A replay that updates the number of shown packets with each animation frame, until its end. */
function useReplay(
  times: readonly number[],
  place: number,
  onShown: (count: number) => void,
): [Replay, (change: (before: Replay) => Replay) => void] {
  const [replay, setReplay] = useState<Replay>(RESTING);
  const latest = useRef({ place, onShown });
  useEffect(() => {
    latest.current = { place, onShown };
  });
  useEffect(() => {
    if (replay.since === undefined) return;
    let frame = 0;
    const tick = () => {
      const at = standing(replay, performance.now());
      const shown = shownBy(times, at);
      if (shown !== latest.current.place) latest.current.onShown(shown);
      if (shown >= times.length) setReplay((before) => rested(before, performance.now()));
      else frame = requestAnimationFrame(tick);
    };
    frame = requestAnimationFrame(tick);
    return () => cancelAnimationFrame(frame);
  }, [replay, times]);
  return [replay, setReplay];
}
