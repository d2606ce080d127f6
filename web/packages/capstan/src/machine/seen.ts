// Recognises repeated packets, by stream.
import type { StreamPacket } from "../generated/wire.js";

/**
 * The most streams that are remembered. A server that changes streams often within a call is
 * faulty.
 */
const STREAMS = 16;
/** The gap before `stream_lost`, the only one that the protocol itself makes. */
const JUMP = 2 ** 20;

/** The position of a packet relative to the earlier ones. */
export type Place = { is: "repeat" } | { is: "next" } | { is: "gap"; expected: number };

/** The last seq of each stream. */
export class Seen {
  readonly #last = new Map<string, number>();

  /** Compares a packet with the earlier ones, and records it. */
  place(packet: StreamPacket): Place {
    const last = this.#last.get(packet.stream_id);
    if (last !== undefined && packet.seq <= last) return { is: "repeat" };
    this.#remember(packet);
    if (last === undefined || packet.seq === last + 1 || isLostTail(packet, last + 1))
      return { is: "next" };
    return { is: "gap", expected: last + 1 };
  }

  #remember({ stream_id, seq }: StreamPacket): void {
    this.#last.set(stream_id, seq);
    const [oldest] = this.#last.keys();
    if (this.#last.size > STREAMS && oldest !== undefined) this.#last.delete(oldest);
  }
}

function isLostTail(packet: StreamPacket, expected: number): boolean {
  return (
    packet.op === "ERROR" && packet.p.code === "stream_lost" && packet.seq - expected >= JUMP - 1
  );
}
