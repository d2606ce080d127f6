// The errors of a call, in RFC 004's three kinds. A message says what happened.
import { faultOf, isRetryableError } from "./ag-ui-error-codes.js";
import { ErrorSeverity, type Problem, type StreamError } from "./generated/wire.js";
import { asCount, asObject, parseJson } from "./text.js";

/** A failed call. */
export abstract class CAPError extends Error {
  /** Whether the same request may succeed later. */
  abstract readonly isRetryable: boolean;
  /** Seconds to wait before trying again, if the server said so. */
  readonly retryAfter: number | undefined = undefined;

  /** For `JSON.stringify`, which otherwise omits an error's message. */
  toJSON(): Record<string, unknown> {
    return { ...(this as object), name: this.name, message: this.message };
  }
}

/** The facts about a lost connection. */
export interface Lost extends ErrorOptions {
  /** The server: scheme, host and port. */
  address?: string | undefined;
  /** The call's deadline in milliseconds, if it ended the call. */
  deadline?: number | undefined;
}

/** No stable connection after all retries, or the call exceeded its deadline. */
export class CAPConnectionError extends CAPError {
  override readonly name = "CAPConnectionError";
  readonly isRetryable = true;
  readonly address: string | undefined;
  readonly deadline: number | undefined;

  /**
   * @param why the last failure.
   * @param retries the number of retries since the last new packet.
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

  /** The same failure, with the server's address. */
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
  const remedy = "a run that has started continues: allow more time, or attach to it";
  return `${address}: ${why}${tries}; ${remedy}`;
}

/** The error for a call that exceeded its deadline. */
export function late(deadline: number, retries: number): CAPConnectionError {
  return new CAPConnectionError(`not done within the deadline of ${deadline / 1000} s`, retries, {
    deadline,
  });
}

/** The server violated the protocol. */
export class CAPProtocolError extends CAPError {
  override readonly name = "CAPProtocolError";
  readonly isRetryable = false;
}

/** A redirect that is not followed. Only its origin is shown, because the rest may be a secret. */
export function redirected(status: number, origin: string): CAPProtocolError {
  // A browser hides the status and the target.
  const to = origin === "null" ? "" : ` to ${origin}`;
  const what = `${status ? `status ${status}: ` : ""}redirected${to}`;
  return new CAPProtocolError(
    `${what}, which is not followed, because the request would go to another server; ` +
      "if that is the right one, make it the base URL",
  );
}

/** The facts about a failure of the server. */
export interface Failure {
  /** The HTTP status, if a request was refused. */
  status?: number | undefined;
  /** The problem details of the refusal. */
  problem?: Problem | undefined;
  /** The error of the stream, if the run failed. */
  error?: StreamError | undefined;
  /** Seconds to wait. */
  retryAfter?: number | undefined;
  /** The text before the failure, in text mode only. */
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

  /** The stream's code, else the code of the problem, else a plain one. */
  get code(): string {
    return this.error?.code ?? (this.problem?.code || "http_error");
  }

  /** What the run does next. */
  get severity(): ErrorSeverity {
    if (this.error) return this.error.severity;
    if (this.problem) return this.problem.severity ?? ErrorSeverity.FATAL;
    return this.isRetryable ? ErrorSeverity.TRANSIENT : ErrorSeverity.FATAL;
  }

  /** The failure's own value takes precedence over that of its code. */
  get isRetryable(): boolean {
    if (this.error) return isRetryableStreamError(this.error);
    if (this.problem?.code) return this.problem.retryable ?? false;
    return this.status !== undefined && PASSING.includes(this.status);
  }

  override toJSON(): Record<string, unknown> {
    return { ...super.toJSON(), code: this.code, severity: this.severity };
  }
}

/** Statuses that are usually temporary, if the response has no details. */
const PASSING = [408, 425, 429, 500, 502, 503, 504, 529];

/** The failure of a run. */
export function streamFailure(error: StreamError, partialText?: string): CAPRuntimeError {
  return new CAPRuntimeError({
    error,
    retryAfter: asCount(error.details?.["retry_after"]),
    partialText,
  });
}

/**
 * The error for a refused request, with or without problem details. `Retry-After` takes precedence
 * over the body.
 */
export function refusal(status: number, body: string, header: number | undefined): CAPRuntimeError {
  const problem = asObject(parseJson(body)) as Problem | undefined;
  return new CAPRuntimeError({
    status,
    problem,
    retryAfter: header ?? asCount(problem?.retry_after),
  });
}

function messageOf({ status, problem, error }: Failure): string {
  const message = error ? error.message : problem?.detail || problem?.title;
  return message || `The server answered with status ${status ?? 0}.`;
}

function isRetryableStreamError(error: StreamError): boolean {
  const retryable = error.details?.["retryable"];
  if (typeof retryable === "boolean") return retryable;
  return faultOf(error.code)
    ? isRetryableError(error.code)
    : error.severity === ErrorSeverity.TRANSIENT;
}
