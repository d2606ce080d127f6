// What happens while a call resumes, for pages that show it.
import type { StreamError } from "./generated/wire.js";

/** An event between packets. Waits are milliseconds. */
export type Notice =
  /** A request goes out; the cursor is where it resumes. */
  | { type: "connecting"; cursor: string | null }
  /** The server answers with a stream. */
  | { type: "connected" }
  /** The stream resumed at a cursor. */
  | { type: "resumed"; cursor: string }
  /** The connection is lost, or the run waits. */
  | { type: "retrying"; wait: number; because: string }
  /** A packet came again, and was dropped. */
  | { type: "duplicate"; seq: number }
  /** Packets are missing. */
  | { type: "gap"; expected: number; found: number }
  /** An attempt failed with a TRANSIENT error; the run continues, or waits. */
  | { type: "attempt_failed"; error: StreamError }
  /** A part failed, and the stream continues. The packet itself follows. */
  | { type: "warning"; error: StreamError };

/** A notice as text. */
export function describeNotice(notice: Notice): string {
  switch (notice.type) {
    case "connecting":
      return notice.cursor === null ? "connecting" : `connecting, to resume after ${notice.cursor}`;
    case "connected":
      return "connected";
    case "resumed":
      return `resumed after ${notice.cursor}`;
    case "retrying":
      return (
        `Connection dropped. Retrying in ${(notice.wait / 1000).toFixed(1)} seconds: ` +
        notice.because
      );
    case "duplicate":
      return `packet ${notice.seq} came again and was dropped`;
    case "gap":
      return `packet ${notice.found} came where ${notice.expected} was due`;
    case "attempt_failed":
      return `an attempt failed: ${describeError(notice.error)}`;
    case "warning":
      return `the agent warns: ${describeError(notice.error)}`;
  }
}

/** An error of a stream as text. */
export function describeError({ severity, code, message }: StreamError): string {
  return `${severity} ${code}: ${message}`;
}
