// The client without its I/O. Events and the time go in, and the next action comes out. It is the
// same machine as in Rust; both replay the same traces in tests. The shell calls `poll`, performs
// the action, and reports the result.
import { isPassing, retryAfter } from "./connection.js";
import {
  type CAPError,
  CAPConnectionError,
  CAPProtocolError,
  late,
  refusal,
  streamFailure,
} from "./errors.js";
import type { StreamError, StreamPacket } from "./generated/wire.js";
import { clampWait, delay, type Policy } from "./machine/backoff.js";
import { Packets } from "./machine/packets.js";
import { Seen } from "./machine/seen.js";
import { describeError, type Notice } from "./notice.js";

/** The next action of the shell. Times are milliseconds on the clock of `now`. */
export type Action =
  /** Send the request with the same bytes, then report `opened`, `refused` or `failed`. */
  | { do: "connect"; lastEventId: string | null }
  /** Read from the body, then report `bytes`, `ended` or `failed`. */
  | { do: "read" }
  /** Do nothing until this time, then call `poll` again. */
  | { do: "wait"; until: number }
  /** Return this packet to the caller. */
  | { do: "packet"; packet: StreamPacket }
  /** Call `onNotice`. */
  | { do: "notice"; notice: Notice }
  /** The stream is complete. */
  | { do: "done" }
  /** The call failed. */
  | { do: "fail"; error: CAPError };

/** The head of a response that was not refused. */
export interface Head {
  status: number;
  contentType: string;
}

/** A response of status 400 or above. */
export interface Refusal {
  status: number;
  retryAfter: string | null;
  body: string;
}

type State = { is: "due" | "connecting" | "reading" | "over" } | { is: "waiting"; until: number };

/** The state of one call. */
export class Machine {
  #state: State = { is: "due" };
  readonly #packets: Packets;
  readonly #seen = new Seen();
  readonly #queue: Action[] = [];
  /**
   * A stream was received before. From then on, refusals that a deploy causes count as
   * interruptions.
   */
  #wasOpen = false;
  /** Interruptions since the last new packet. */
  #retries = 0;
  /** TRANSIENT errors of this call that took effect. */
  #transients = 0;
  /** When the call began. */
  #beganAt: number | undefined;
  /** When the last new packet came, or the call began. */
  #progressAt: number | undefined;
  /** A TRANSIENT error that takes effect if no packet follows it. */
  #pending: StreamError | undefined;

  /** Creates a call that starts a run, or follows one from a cursor. */
  constructor(
    readonly policy: Policy,
    lastEventId: string | null = null,
    readonly random: () => number = Math.random,
  ) {
    this.#packets = new Packets(policy.profile, lastEventId);
  }

  /** The next action. Call it again after each action. */
  poll(now: number): Action {
    this.#beganAt ??= now;
    this.#progressAt ??= now;
    this.#checkDeadline(now);
    const queued = this.#queue.shift();
    if (queued) return queued;
    switch (this.#state.is) {
      case "due":
        return this.#connect();
      case "waiting":
        return this.#state.until <= now
          ? this.#connect()
          : { do: "wait", until: Math.min(this.#state.until, this.deadline) };
      case "connecting":
        return { do: "connect", lastEventId: this.#packets.lastEventId };
      case "reading":
        return this.#read(now);
      case "over":
        return { do: "done" };
    }
  }

  /** When the call must end, on the clock of `now`. The shell neither sends nor reads after it. */
  get deadline(): number {
    return (this.#beganAt ?? 0) + (this.policy.deadline ?? Number.POSITIVE_INFINITY);
  }

  #checkDeadline(now: number): void {
    if (this.policy.deadline === undefined || now < this.deadline || this.#state.is === "over")
      return;
    this.#queue.length = 0;
    this.#fail(late(this.policy.deadline, this.#retries));
  }

  #connect(): Action {
    this.#state = { is: "connecting" };
    return { do: "notice", notice: { type: "connecting", cursor: this.#packets.lastEventId } };
  }

  /** The server answered with a success status. */
  opened(head: Head): void {
    const essence = (head.contentType.split(";")[0] ?? "").trim().toLowerCase();
    if (head.status === 204 && this.policy.isViewer) {
      // The stream has ended, and the client has all of it.
      this.#state = { is: "over" };
    } else if (essence !== "text/event-stream") {
      const found = essence || "none";
      this.#fail(
        new CAPProtocolError(
          `status ${head.status}, content type: expected text/event-stream, found ${found}`,
        ),
      );
    } else {
      this.#wasOpen = true;
      this.#state = { is: "reading" };
      const cursor = this.#packets.lastEventId;
      this.#packets.open();
      this.#tell(cursor === null ? { type: "connected" } : { type: "resumed", cursor });
    }
  }

  /**
   * The server refused. This is final on the first connection. On later ones, a deploy or a proxy
   * may have answered.
   */
  refused(answer: Refusal, now: number): void {
    const error = refusal(answer.status, answer.body, retryAfter(answer.retryAfter));
    const wait = error.retryAfter === undefined ? undefined : error.retryAfter * 1000;
    const passes = this.#wasOpen && isPassing(answer.status);
    if (!passes || this.#isTooLong(wait)) return this.#fail(error);
    this.#interrupted(`status ${answer.status}`, wait, now);
  }

  /** Bytes of the body. */
  bytes(bytes: Uint8Array): void {
    this.#packets.push(bytes);
  }

  /** The body ended without an error. */
  ended(now: number): void {
    this.#lost("the stream ended without CLOSE", now);
  }

  /** The request or the body failed: refused, reset, timed out. */
  failed(why: string, now: number): void {
    this.#lost(why, now);
  }

  /**
   * The connection is lost. A frame that was not taken yet comes again, because it is after the
   * cursor.
   */
  #lost(why: string, now: number): void {
    this.#checkDeadline(now);
    if (this.#state.is === "over") return;
    this.#packets.close();
    if (!this.#packets.canResume) {
      return this.#fail(
        new CAPConnectionError(`${why}, and the server gives no place to resume at`, 0),
      );
    }
    const pending = this.#pending;
    this.#pending = undefined;
    if (pending) this.#transient(pending, now);
    else this.#interrupted(why, undefined, now);
  }

  /** The body ended with a TRANSIENT error: the run waits for its client. */
  #transient(error: StreamError, now: number): void {
    this.#transients += 1;
    const failure = streamFailure(error);
    const wait = failure.retryAfter === undefined ? undefined : failure.retryAfter * 1000;
    if (this.#transients > this.policy.maxRetries || this.#isTooLong(wait))
      return this.#fail(failure);
    this.#wait(describeError(error), wait, now);
  }

  #interrupted(why: string, floor: number | undefined, now: number): void {
    const since = now - (this.#progressAt ?? now);
    const isPatient = this.#wasOpen && since < this.policy.resumePatience;
    if (this.#retries >= this.policy.maxRetries && !isPatient) {
      return this.#fail(new CAPConnectionError(why, this.#retries));
    }
    this.#wait(why, floor, now);
    this.#retries += 1;
  }

  #wait(because: string, floor: number | undefined, now: number): void {
    const floors = [floor, this.#packets.retry].filter((wait) => wait !== undefined);
    const bounded = floors.map((wait) => clampWait(this.policy, wait));
    const wait = Math.max(delay(this.policy.backoff, this.#retries, this.random), ...bounded);
    this.#state = { is: "waiting", until: now + wait };
    this.#tell({ type: "retrying", wait, because });
  }

  #isTooLong(wait: number | undefined): boolean {
    return wait !== undefined && wait > this.policy.maxWait;
  }

  #tell(notice: Notice): void {
    this.#queue.push({ do: "notice", notice });
  }

  #fail(error: CAPError): void {
    this.#queue.push(this.#over({ do: "fail", error }));
  }

  #over(action: Action): Action {
    this.#state = { is: "over" };
    return action;
  }

  /** The next action from the bytes so far. */
  #read(now: number): Action {
    try {
      const packet = this.#packets.next();
      return packet ? this.#take(packet, now) : { do: "read" };
    } catch (error) {
      return this.#over({ do: "fail", error: error as CAPError });
    }
  }

  #take(packet: StreamPacket, now: number): Action {
    const place = this.#seen.place(packet);
    if (place.is === "next") return this.#accept(packet, now);
    if (place.is === "repeat") {
      const { seq } = packet;
      return packet.op === "CLOSE"
        ? this.#over({ do: "done" })
        : { do: "notice", notice: { type: "duplicate", seq } };
    }
    const { expected } = place;
    const found = packet.seq;
    if (this.policy.isStrict) {
      const error = new CAPProtocolError(`seq: packet ${found} came where ${expected} was due`);
      return this.#over({ do: "fail", error });
    }
    this.#queue.unshift(this.#accept(packet, now));
    return { do: "notice", notice: { type: "gap", expected, found } };
  }

  /** Takes a new packet. */
  #accept(packet: StreamPacket, now: number): Action {
    this.#retries = 0;
    this.#progressAt = now;
    const pending = this.#pending;
    this.#pending = undefined;
    if (packet.op === "CLOSE") {
      return this.#over(
        pending ? { do: "fail", error: streamFailure(pending) } : { do: "packet", packet },
      );
    }
    return packet.op === "ERROR" ? this.#error(packet, packet.p) : { do: "packet", packet };
  }

  #error(packet: StreamPacket, error: StreamError): Action {
    switch (error.severity) {
      case "FATAL":
        return this.#over({ do: "fail", error: streamFailure(error) });
      case "WARNING":
        this.#queue.push({ do: "packet", packet });
        return { do: "notice", notice: { type: "warning", error } };
      case "TRANSIENT":
        this.#pending = error;
        return { do: "notice", notice: { type: "attempt_failed", error } };
    }
  }
}
