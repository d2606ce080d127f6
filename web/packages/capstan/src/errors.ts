// What can go wrong in a call, in RFC 004's three kinds. A message says what happened.
import { faultOf, isRetryableError } from "./ag-ui-error-codes.js";
import { ErrorSeverity, type Problem, type StreamError } from "./generated/wire.js";
import { asCount, asObject, parseJson } from "./text.js";

/** A failed call. */
export abstract class CAPError extends Error {
  /** Whether the same request may succeed later. */
  abstract readonly isRetryable: boolean;
  /** Seconds to wait before trying again, if the server said so. */
  readonly retryAfter: number | undefined = undefined;

  /** For `JSON.stringify`, which leaves out an error's message by itself. */
  toJSON(): Record<string, unknown> {
    return { ...(this as object), name: this.name, message: this.message };
  }
}

/** What is known of a lost connection. */
export interface Lost extends ErrorOptions {
  /** The server: scheme, host and port. */
  address?: string | undefined;
  /** The call's own deadline in milliseconds, if that is what ended it. */
  deadline?: number | undefined;
}

/** No connection, or none that holds, after all retries; or the call took longer than it may. */
export class CAPConnectionError extends CAPError {
  override readonly name = "CAPConnectionError";
  readonly isRetryable = true;
  readonly address: string | undefined;
  readonly deadline: number | undefined;

  /**
   * @param why what happened last.
   * @param retries how often it was tried again since the last new packet.
   */
  constructor(
    readonly why: string,
    readonly retries: number,
    lost: Lost = {},
  ) {
    super(lostMessage(why, retries, lost), lost);
    this.address = lost.address;
    this.deadline = lost.deadline;
  }

  /** The same failure with the server that it is about. */
  at(address: string): CAPConnectionError {
    return new CAPConnectionError(this.why, this.retries, {
      cause: this.cause,
      deadline: this.deadline,
      address,
    });
  }
}

function lostMessage(why: string, retries: number, { address, deadline }: Lost): string {
  if (address === undefined) return why;
  const tries = retries > 0 ? ` (tried again ${retries === 1 ? "once" : `${retries} times`})` : "";
  if (deadline === undefined)
    return (
      `no connection to ${address}: ${why}${tries}; ` +
      "check the address and the network, or try again later"
    );
  const remedy = "a run that was started goes on: allow more time, or attach to it";
  return `${address}: ${why}${tries}; ${remedy}`;
}

/** The call took longer than it may. */
export function late(deadline: number, retries: number): CAPConnectionError {
  return new CAPConnectionError(`not done within the deadline of ${deadline / 1000} s`, retries, {
    deadline,
  });
}

/** The server sent what the protocol does not allow. */
export class CAPProtocolError extends CAPError {
  override readonly name = "CAPProtocolError";
  readonly isRetryable = false;
}

/** A redirect that is not followed. Only its origin is shown: the rest may be a secret. */
export function redirected(status: number, origin: string): CAPProtocolError {
  // A browser hides the status and the target.
  const to = origin === "null" ? "" : ` to ${origin}`;
  const what = `${status ? `status ${status}: ` : ""}redirected${to}`;
  return new CAPProtocolError(
    `${what}, which is not followed, since what is asked would go there; ` +
      "if that is the right server, make it the base URL",
  );
}

/** What is known of the server's own failure. */
export interface Failure {
  /** The HTTP status, if a request was refused. */
  status?: number | undefined;
  /** The problem that came with it. */
  problem?: Problem | undefined;
  /** The error of the stream, if the run failed. */
  error?: StreamError | undefined;
  /** Seconds to wait. */
  retryAfter?: number | undefined;
  /** The text before the failure; in text mode only. */
  partialText?: string | undefined;
}

/** The server refused the request, or the run failed. */
export class CAPRuntimeError extends CAPError {
  override readonly name = "CAPRuntimeError";
  readonly status: number | undefined;
  readonly problem: Problem | undefined;
  readonly error: StreamError | undefined;
  override readonly retryAfter: number | undefined;
  readonly partialText: string | undefined;

  constructor(failure: Failure) {
    super(messageOf(failure));
    this.status = failure.status;
    this.problem = failure.problem;
    this.error = failure.error;
    this.retryAfter = failure.retryAfter;
    this.partialText = failure.partialText;
  }

  /** The stream's code, else the problem's, else a plain one. */
  get code(): string {
    return this.error?.code ?? (this.problem?.code || "http_error");
  }

  /** What the run does next. */
  get severity(): ErrorSeverity {
    if (this.error) return this.error.severity;
    if (this.problem) return this.problem.severity ?? ErrorSeverity.FATAL;
    return this.isRetryable ? ErrorSeverity.TRANSIENT : ErrorSeverity.FATAL;
  }

  /** What the server says of this failure wins over what its code usually means. */
  get isRetryable(): boolean {
    if (this.error) return isRetryableStreamError(this.error);
    if (this.problem?.code) return this.problem.retryable ?? false;
    return this.status !== undefined && PASSING.includes(this.status);
  }

  override toJSON(): Record<string, unknown> {
    return { ...super.toJSON(), code: this.code, severity: this.severity };
  }
}

/** Statuses that usually pass, if the response says no more. */
const PASSING = [408, 425, 429, 500, 502, 503, 504, 529];

/** The failure of a run. */
export function streamFailure(error: StreamError, partialText?: string): CAPRuntimeError {
  return new CAPRuntimeError({
    error,
    retryAfter: asCount(error.details?.["retry_after"]),
    partialText,
  });
}

/** A refused request, its body a problem or not. `Retry-After` beats the problem's own word. */
export function refusal(status: number, body: string, header: number | undefined): CAPRuntimeError {
  const problem = asObject(parseJson(body)) as Problem | undefined;
  return new CAPRuntimeError({
    status,
    problem,
    retryAfter: header ?? asCount(problem?.retry_after),
  });
}

function messageOf({ status, problem, error }: Failure): string {
  const told = error ? error.message : problem?.detail || problem?.title;
  return told || `The server answered with status ${status ?? 0}.`;
}

function isRetryableStreamError(error: StreamError): boolean {
  const told = error.details?.["retryable"];
  if (typeof told === "boolean") return told;
  return faultOf(error.code)
    ? isRetryableError(error.code)
    : error.severity === ErrorSeverity.TRANSIENT;
}
