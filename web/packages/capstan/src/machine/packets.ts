// Bytes into packets, in either profile, and the cursor that goes with them.
import { parseCursor } from "../cursor.js";
import { CAPProtocolError } from "../errors.js";
import type { StreamPacket } from "../generated/wire.js";
import { decodePacket, decodePacketV2, EVENT_NAME, type PlacelessPacket } from "../packet.js";
import { Decoder } from "../sse.js";
import type { Profile } from "./backoff.js";

/** The stream of packets that name none. */
const NIL = "00000000-0000-0000-0000-000000000000";

/** The frames of one body after another. */
export class Packets {
  /** The server's wish for reconnections. */
  retry: number | undefined;
  /** False once a packet came without any place (v2 only): it could not be told from a repeat. */
  canResume = true;

  #decoder = new Decoder();
  /** The cursor that earlier bodies left behind. */
  #cursor: string | null;
  /** The stream of the last packet: the cursor of servers that send no ids. */
  #stream: string | null = null;
  #count = 0;

  constructor(
    readonly profile: Profile,
    cursor: string | null,
  ) {
    this.#cursor = cursor;
  }

  /** A new body begins; what an old one cut off is forgotten. */
  open(): void {
    this.#decoder = new Decoder();
  }

  push(bytes: Uint8Array): void {
    this.#decoder.push(bytes);
  }

  /** The body is gone; its last id stays. */
  close(): void {
    this.retry = this.#decoder.retry ?? this.retry;
    // An empty id means that there is none any more.
    if (this.#decoder.lastEventId !== undefined) this.#cursor = this.#decoder.lastEventId || null;
  }

  /** What to resume with: the server's own id, else the stream's. */
  get lastEventId(): string | null {
    return this.#cursor ?? this.#stream;
  }

  /** The next packet that the bytes so far hold. Throws {@link CAPProtocolError}. */
  next(): StreamPacket | undefined {
    try {
      return this.#next();
    } catch (error) {
      throw new CAPProtocolError(error instanceof Error ? error.message : String(error));
    }
  }

  #next(): StreamPacket | undefined {
    for (let frame = this.#decoder.take(); frame; frame = this.#decoder.take()) {
      // A frame without a name is a packet of a plain server; one with another name is somebody
      // else's.
      if ((frame.event !== EVENT_NAME && frame.event !== "message") || frame.data === "") continue;
      const packet =
        this.profile === "v1" ? decodePacket(frame.data) : this.#placed(decodePacketV2(frame.data));
      this.#stream = packet.stream_id === NIL ? null : packet.stream_id;
      return packet;
    }
    return undefined;
  }

  /** v2 need not say where a packet belongs; the SSE id may. */
  #placed(packet: PlacelessPacket): StreamPacket {
    this.#count += 1;
    const cursor = parseCursor(this.#decoder.lastEventId ?? "");
    const seq = packet.seq ?? cursor?.seq;
    if (seq === undefined) this.canResume = false;
    return {
      stream_id: packet.stream_id ?? cursor?.stream_id ?? NIL,
      seq: seq ?? this.#count,
      op: packet.op,
      t: packet.t ?? new Date().toISOString(),
      p: packet.p,
    } as StreamPacket;
  }
}
