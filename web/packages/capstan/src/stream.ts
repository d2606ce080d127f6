// The shell around the machine: fetches, reads, waits. The machine makes all decisions.
import { Connection } from "./connection.js";
import { CAPConnectionError, CAPProtocolError } from "./errors.js";
import type { StreamPacket } from "./generated/wire.js";
import { type Action, Machine } from "./machine.js";
import type { Policy } from "./machine/backoff.js";
import type { Notice } from "./notice.js";
import { pause, PROBLEM_BYTES, readUpTo, reason, within } from "./wait.js";

/** The packets of one run. Leaving the loop closes the connection. The run continues. */
export class PacketStream implements AsyncIterable<StreamPacket> {
  /** The id of the stream, as soon as the server has sent it. */
  streamId: string | undefined;
  /** The cursor of the last returned packet. `CapClient.attach` resumes there. */
  cursor: string | undefined;

  readonly #connection: Connection;
  readonly #machine: Machine;
  readonly #notify: (notice: Notice) => void;
  #isOver = false;

  constructor(
    connection: Connection,
    policy: Policy,
    lastEventId: string | null,
    notify: (notice: Notice) => void,
  ) {
    this.#connection = connection;
    this.#machine = new Machine(policy, lastEventId);
    this.#notify = notify;
  }

  /**
   * The next packet; `undefined` after CLOSE. WARNINGs are returned as packets, other errors are
   * thrown.
   */
  async next(): Promise<StreamPacket | undefined> {
    while (!this.#isOver) {
      const packet = await this.#act(this.#machine.poll(performance.now()));
      if (packet) return packet;
    }
    return undefined;
  }

  /** Closes the connection. The run continues. */
  close(): void {
    this.#isOver = true;
    this.#connection.drop();
  }

  async *[Symbol.asyncIterator](): AsyncIterator<StreamPacket> {
    try {
      for (let packet = await this.next(); packet; packet = await this.next()) yield packet;
    } finally {
      this.close();
    }
  }

  async #act(action: Action): Promise<StreamPacket | undefined> {
    this.#heed();
    switch (action.do) {
      case "packet":
        this.streamId = action.packet.stream_id;
        this.cursor = `${action.packet.stream_id}:${action.packet.seq}`;
        return action.packet;
      case "notice":
        this.#notify(action.notice);
        break;
      case "connect":
        await this.#connect(action.lastEventId).catch((error: unknown) => this.#lost(error));
        break;
      case "read":
        await this.#read().catch((error: unknown) => this.#lost(error));
        break;
      case "wait":
        await pause(action.until - performance.now(), this.#connection.signal);
        break;
      case "done":
        this.close();
        break;
      case "fail":
        this.close();
        throw action.error instanceof CAPConnectionError
          ? action.error.at(this.#connection.address)
          : action.error;
    }
    return undefined;
  }

  /** An abort by the caller is no failure of the network. */
  #heed(): void {
    if (!this.#connection.signal?.aborted) return;
    this.close();
    throw this.#connection.signal.reason;
  }

  async #connect(lastEventId: string | null): Promise<void> {
    const response = await this.#connection.send(lastEventId, this.#patience());
    const { status, headers } = response;
    if (status >= 400) {
      // A body that cannot be read counts as empty.
      const body = await within(
        readUpTo(response, PROBLEM_BYTES),
        this.#patience(),
        "no answer",
      ).catch(() => "");
      return this.#machine.refused(
        { status, retryAfter: headers.get("retry-after"), body },
        performance.now(),
      );
    }
    this.streamId = headers.get("x-stream-id") ?? this.streamId;
    this.#machine.opened({ status, contentType: headers.get("content-type") ?? "" });
    this.#connection.follow(response);
  }

  async #read(): Promise<void> {
    const bytes = await this.#connection.read(this.#patience());
    if (bytes) return this.#machine.bytes(bytes);
    this.#connection.drop();
    this.#machine.ended(performance.now());
  }

  /** The timeout for silence: at most until the deadline. */
  #patience(): number {
    return Math.min(this.#connection.readTimeout, this.#machine.deadline - performance.now());
  }

  #lost(error: unknown): void {
    this.#heed();
    if (error instanceof CAPProtocolError) {
      this.close();
      throw error;
    }
    this.#connection.drop();
    this.#machine.failed(reason(error), performance.now());
  }
}
