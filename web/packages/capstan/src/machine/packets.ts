// Decodes bytes to packets of either profile, and tracks the cursor.
import { parseCursor } from "../cursor.js";
import { CAPProtocolError } from "../errors.js";
import type { StreamPacket } from "../generated/wire.js";
import { decodePacket, decodePacketV2, EVENT_NAME, type PlacelessPacket } from "../packet.js";
import { Decoder } from "../sse.js";
import type { Profile } from "./backoff.js";

/** The stream of packets that name none. */
const NIL = "00000000-0000-0000-0000-000000000000";

/** The frames of several bodies in a row. */
export class Packets {
  /** The reconnection time that the server asked for. */
  retry: number | undefined;
  /** False after a packet without a position (v2 only): a repeat of it would not be recognised. */
  canResume = true;

  #decoder = new Decoder();
  /** The cursor from earlier bodies. */
  #cursor: string | null;
  /** The stream of the last packet, which is the cursor of servers without ids. */
  #stream: string | null = null;
  #count = 0;

  constructor(
    readonly profile: Profile,
    cursor: string | null,
  ) {
    this.#cursor = cursor;
  }

  /** Begins a body. Drops the incomplete frame of the last one. */
  open(): void {
    this.#decoder = new Decoder();
  }

  push(bytes: Uint8Array): void {
    this.#decoder.push(bytes);
  }

  /** Ends a body. Its last id stays. */
  close(): void {
    this.retry = this.#decoder.retry ?? this.retry;
    // An empty id clears the cursor.
    if (this.#decoder.lastEventId !== undefined) this.#cursor = this.#decoder.lastEventId || null;
  }

  /** The cursor for a resume: the server's own id, else the stream's. */
  get lastEventId(): string | null {
    return this.#cursor ?? this.#stream;
  }

  /** The next complete packet. Throws {@link CAPProtocolError}. */
  next(): StreamPacket | undefined {
    try {
      return this.#next();
    } catch (error) {
      throw new CAPProtocolError(error instanceof Error ? error.message : String(error));
    }
  }

  #next(): StreamPacket | undefined {
    for (let frame = this.#decoder.take(); frame; frame = this.#decoder.take()) {
      // A frame without a name is a packet of a plain server. A frame with another name is not a
      // packet.
      if ((frame.event !== EVENT_NAME && frame.event !== "message") || frame.data === "") continue;
      const packet =
        this.profile === "v1" ? decodePacket(frame.data) : this.#placed(decodePacketV2(frame.data));
      this.#stream = packet.stream_id === NIL ? null : packet.stream_id;
      return packet;
    }
    return undefined;
  }

  /** In v2 the position may be in the packet or in the SSE id. */
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
