// The canonical module of the AG-UI error codes: story 22-B2's ten, their statuses, texts and
// retry rules.
//
// The texts of toasts come from the story. Everything else is derived from the generated catalogue
// of faults.
import {
  AGUI_HTTP_STATUS,
  AGUI_RETRYABLE,
  AGUIErrorCode,
  CATALOGUE,
  type Fault,
} from "./generated/faults.js";
import type { ErrorDomain, ErrorSeverity } from "./generated/wire.js";

export { AGUIErrorCode } from "./generated/faults.js";
export { parseAGUIError } from "./parse-error.js";

/** A failure of a run, with the facts that a user interface needs. */
export interface AGUIErrorData {
  /** One of the ten codes, or a foreign agent's own code. */
  code: AGUIErrorCode | string;
  /** A text for people. */
  message: string;
  /** The fixed status of the code, or the status of the response. */
  http_status: number;
  /** Further facts; in production only harmless ones. */
  details?: Record<string, unknown>;
  /** Seconds to wait before a retry. */
  retry_after?: number;
  /** The finer code of the catalogue, if the sender has it. */
  kind?: string;
  /** What the run does next. */
  severity?: ErrorSeverity;
  /** Where the failure comes from. */
  domain?: ErrorDomain;
  /** Whether a retry can help, by the finer kind. It takes precedence over the code's own rule. */
  retryable?: boolean;
  /** The problem type, `/errors/<slug>`. */
  type?: string;
}

const CODES: readonly AGUIErrorCode[] = Object.values(AGUIErrorCode);

/** The fixed HTTP status of each code. */
export const ERROR_STATUS: Readonly<Record<AGUIErrorCode, number>> = AGUI_HTTP_STATUS;

/** The text of a toast for each code, from the story. */
export const ERROR_MESSAGES: Readonly<Record<AGUIErrorCode, string>> = {
  AGENT_EXECUTION_ERROR: "Something went wrong. Please try again.",
  TENANT_REQUIRED: "Authentication required.",
  TENANT_UNAUTHORIZED: "Access denied.",
  SESSION_NOT_FOUND: "Session expired. Please refresh.",
  RATE_LIMITED: "Too many requests. Please wait.",
  TIMEOUT: "Request timed out. Please try again.",
  INVALID_REQUEST: "Invalid request. Please check your input.",
  CAPABILITY_NOT_FOUND: "Feature not available.",
  UPSTREAM_ERROR: "External service unavailable.",
  SERVICE_UNAVAILABLE: "Service temporarily unavailable.",
};

/** The catalogue's title of each code, as problems and pages have it. */
export const ERROR_TITLES = Object.fromEntries(
  CODES.map((code) => [code, headOf(code)?.title]),
) as Readonly<Record<AGUIErrorCode, string>>;

/** Whether `code` is one of the ten. */
export function isAGUIErrorCode(code: unknown): code is AGUIErrorCode {
  return CODES.includes(code as AGUIErrorCode);
}

/** The row of the catalogue for a code of either spelling: a finer kind, or one of the ten. */
export function faultOf(code: string): Fault | undefined {
  return (
    CATALOGUE.find((fault) => fault.code === code) ??
    (isAGUIErrorCode(code) ? headOf(code) : undefined)
  );
}

/**
 * Whether the same request may succeed later. The finer kind's flag takes precedence over the
 * code's.
 */
export function isRetryableError(error: AGUIErrorCode | string | AGUIErrorData): boolean {
  if (typeof error !== "string")
    return finest(error, (fault) => fault.retryable) ?? isRetryableError(error.code);
  return isAGUIErrorCode(error)
    ? AGUI_RETRYABLE.includes(error)
    : (faultOf(error)?.retryable ?? false);
}

/** Whether the user has to act first: sign in, correct the input, or begin anew. */
export function requiresUserAction(error: AGUIErrorCode | string | AGUIErrorData): boolean {
  const kind = typeof error === "string" ? error : (error.kind ?? error.code);
  const domain = (typeof error === "string" ? undefined : error.domain) ?? faultOf(kind)?.domain;
  return (domain === "client" || domain === "security") && !isRetryableError(error);
}

/** The title of a toast: the story's text for the code, or the message for an unknown code. */
export function getErrorTitle(error: AGUIErrorData): string {
  const code = isAGUIErrorCode(error.code) ? error.code : faultOf(error.code)?.agui_code;
  return (
    (code && ERROR_MESSAGES[code]) ??
    (error.message || ERROR_MESSAGES[AGUIErrorCode.AGENT_EXECUTION_ERROR])
  );
}

/** The text of a toast: the message, with the remaining wait if there is one. */
export function getDisplayMessage(
  error: AGUIErrorData,
  secondsLeft: number = error.retry_after ?? 0,
): string {
  const message =
    error.message ||
    (faultOf(error.code) ?? faultOf(AGUIErrorCode.AGENT_EXECUTION_ERROR))?.message ||
    "";
  return secondsLeft > 0 ? `${message} ${retryHint(secondsLeft)}` : message;
}

/** "Please retry in 45 seconds." */
export function retryHint(seconds: number): string {
  return `Please retry in ${formatRetryAfter(seconds)}.`;
}

/**
 * A wait as text, rounded up so that no retry is too early: "45 seconds", "2 minutes", "1 hour".
 */
export function formatRetryAfter(seconds: number): string {
  const whole = Math.max(0, Math.ceil(seconds));
  if (whole <= 120) return plural(whole, "second");
  return whole < 5400
    ? plural(Math.ceil(whole / 60), "minute")
    : plural(Math.ceil(whole / 3600), "hour");
}

/** The look of a toast: destructive for failures of the server. */
export function getVariant(error: AGUIErrorData): "default" | "destructive" {
  return error.http_status >= 500 ? "destructive" : "default";
}

function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** The sender's own value for this failure, else the catalogue's value for its finer kind. */
function finest(error: AGUIErrorData, read: (fault: Fault) => boolean): boolean | undefined {
  const fault =
    error.kind === undefined ? undefined : CATALOGUE.find(({ code }) => code === error.kind);
  return error.retryable ?? (fault && read(fault));
}

/** The fault kind that shares its slug with a code. */
function headOf(code: AGUIErrorCode): Fault | undefined {
  const slug = code.toLowerCase().replaceAll("_", "-");
  return CATALOGUE.find((fault) => fault.slug === slug || `${fault.slug}-error` === slug);
}
