// The text mode: a message in, the text of the answer out.
import { CAPRuntimeError } from "./errors.js";
import { STREAM_RESET, viewEvent } from "./event.js";
import type { StreamPacket } from "./generated/wire.js";
import type { PacketStream } from "./stream.js";
import { Transcript } from "./transcript.js";

/**
 * The text of one answer, piece by piece.
 *
 * A `stream_reset` takes back text that was already returned, which an iterator of text cannot
 * express. So it is an error of code `stream_reset`, with the text so far. {@link collect} and
 * `CapClient.assist` with a {@link Transcript} apply resets.
 */
export class ChatStream implements AsyncIterable<string> {
  readonly #packets: PacketStream;
  readonly #transcript = new Transcript();

  /** @param conversationId known at once, for `CapClient.chatIn`. */
  constructor(
    packets: PacketStream,
    readonly conversationId: string,
  ) {
    this.#packets = packets;
  }

  /** The next piece of text; `undefined` at the end. */
  async next(): Promise<string | undefined> {
    for (let packet = await this.#take(); packet; packet = await this.#take()) {
      if (packet.op === "DELTA") return packet.p;
      if (packet.op === "EVENT" && viewEvent(packet.p).type === "reset") throw this.#reset();
    }
    return undefined;
  }

  async *[Symbol.asyncIterator](): AsyncIterator<string> {
    try {
      for (let text = await this.next(); text !== undefined; text = await this.next()) yield text;
    } finally {
      this.#packets.close();
    }
  }

  /** Reads to the end. Returns all of the text, with resets applied. */
  async collect(): Promise<string> {
    while (await this.#take());
    return this.text;
  }

  /** The text so far. */
  get text(): string {
    return this.#transcript.text;
  }

  /** The stream's id, as soon as the server has sent it. */
  get streamId(): string | undefined {
    return this.#packets.streamId;
  }

  /** Why the answer ended, once it has. */
  get reason(): string | undefined {
    return this.#transcript.reason;
  }

  /** The usage, if the server sent it at the end. */
  get usage(): Record<string, unknown> | undefined {
    return this.#transcript.usage;
  }

  async #take(): Promise<StreamPacket | undefined> {
    try {
      const packet = await this.#packets.next();
      if (packet) this.#transcript.take(packet);
      return packet;
    } catch (error) {
      throw error instanceof CAPRuntimeError
        ? new CAPRuntimeError({ ...error, partialText: this.text })
        : error;
    }
  }

  #reset(): CAPRuntimeError {
    const message =
      "A second attempt gave another answer; text that was already handed out is void.";
    const error = { code: STREAM_RESET, message, severity: "TRANSIENT" } as const;
    return new CAPRuntimeError({ error, partialText: this.text });
  }
}
