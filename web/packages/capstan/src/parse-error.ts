// Converts a failure in any form to AGUIErrorData: the story's event, `metadata.capstan`, a
// problem, a StreamError, a thrown error, CopilotKit's wrapper, and each of them as JSON text.
// Anything else gives null, never a guess.
import { type AGUIErrorData, ERROR_STATUS, faultOf, isAGUIErrorCode } from "./ag-ui-error-codes.js";
import { ErrorDomain, ErrorSeverity } from "./generated/wire.js";
import {
  asCount,
  asFlag,
  asObject,
  asText,
  defined,
  isObject,
  type JsonObject,
  parseJson,
} from "./text.js";

/** The deepest nesting of wrappers. It also ends cycles. */
const DEEPEST = 4;
/** The code of a failure that only has a message. */
const UNKNOWN_CODE = "AGENT_EXECUTION_ERROR";

/** Parses a failure in any form; `null` if it is none. */
export function parseAGUIError(input: unknown): AGUIErrorData | null {
  return parse(input, DEEPEST);
}

function parse(input: unknown, depth: number): AGUIErrorData | null {
  if (depth === 0) return null;
  if (typeof input === "string") {
    const json = parseJson(input);
    return isObject(json) ? parse(json, depth - 1) : null;
  }
  if (!isObject(input)) return null;
  const inner = wrapped(input);
  return (inner && parse(inner, depth - 1)) ?? read(input) ?? spoken(input, depth);
}

/**
 * CopilotKit passes `{error, code, context: {event}}`. Events may have their data in `data` or
 * `rawEvent`.
 */
function wrapped(input: JsonObject): JsonObject | undefined {
  const context = asObject(input["context"]);
  const event = asObject(context?.["event"]) ?? asObject(input["event"]);
  if (!event && context && input["error"] instanceof Error)
    return input["error"] as unknown as JsonObject;
  const isNamed = input["type"] === "RUN_ERROR" || input["event"] === "RUN_ERROR";
  return (
    event ??
    (isNamed && input["code"] === undefined ? asObject(input["data"]) : undefined) ??
    failure(input)
  );
}

/** The failure in a CAPRuntimeError, or in HttpAgent's error for a refused request. */
function failure(input: JsonObject): JsonObject | undefined {
  if (!(input instanceof Error)) return undefined;
  const found = [
    input["error"],
    input["problem"],
    input["payload"],
    parseJson(String(input["payload"])),
  ].find(isObject);
  const status = asCount(found?.["status"]) ?? asCount(input["status"]);
  if (!found && status === undefined) return undefined;
  return { retry_after: input["retryAfter"], title: input.message, ...found, status };
}

function read(input: JsonObject): AGUIErrorData | null {
  const ours = asObject(asObject(input["metadata"])?.["capstan"]);
  const members = { ...input, ...ours };
  const code = asText(members["code"]);
  const message = messageOf(members);
  const isKnown = code !== undefined || ours !== undefined || isRunError(input) || isProblem(input);
  if (!isKnown || message === undefined) return null;
  return fill(code || codeOfStatus(asCount(members["status"])), message, members);
}

function isRunError(input: JsonObject): boolean {
  return input["type"] === "RUN_ERROR";
}

function isProblem(input: JsonObject): boolean {
  return asText(input["title"]) !== undefined && asCount(input["status"]) !== undefined;
}

/** The code for a status. Other server errors count as the agent's. */
function codeOfStatus(status = 500): string {
  const codes = Object.entries(ERROR_STATUS).filter(([, fixed]) => fixed === status);
  if (codes.length === 1) return codes[0]?.[0] ?? UNKNOWN_CODE;
  return status >= 400 && status < 500 ? "INVALID_REQUEST" : UNKNOWN_CODE;
}

function messageOf(members: JsonObject): string | undefined {
  const texts = [members["message"], members["detail"], members["title"]];
  return texts.map(asText).find((text) => text !== undefined && text !== "");
}

/** A plain Error, or an object that has only a message, which may be JSON. */
function spoken(input: JsonObject, depth: number): AGUIErrorData | null {
  const message = asText(input["message"]);
  if (message === undefined) return null;
  const found = parse(message, depth - 1);
  if (found || !(input instanceof Error)) return found;
  // A client that could not connect is not a failed server, and may try again.
  const code = input.name === "CAPConnectionError" ? "SERVICE_UNAVAILABLE" : UNKNOWN_CODE;
  return fill(code, message, {});
}

function fill(code: string, message: string, members: JsonObject): AGUIErrorData {
  const fault = isAGUIErrorCode(code) ? undefined : faultOf(code);
  const known = fault?.agui_code ?? code;
  const details = asObject(members["details"]);
  const wait = asCount(members["retry_after"]) ?? asCount(details?.["retry_after"]);
  const sent = asCount(members["http_status"]) ?? (fault ? undefined : asCount(members["status"]));
  return defined<AGUIErrorData>({
    code: known,
    message,
    http_status: sent ?? (isAGUIErrorCode(known) ? ERROR_STATUS[known] : 500),
    details,
    retry_after: wait === undefined ? undefined : Math.ceil(wait),
    kind: asText(members["kind"]) ?? fault?.code,
    severity: oneOf(ErrorSeverity, members["severity"]),
    domain: oneOf(ErrorDomain, members["domain"]) ?? fault?.domain,
    retryable: asFlag(members["retryable"]) ?? asFlag(details?.["retryable"]),
    type: problemType(members["type"]),
  });
}

/** A problem's type is a URL; an event's type is a word. */
function problemType(value: unknown): string | undefined {
  const type = asText(value);
  return type?.includes("/") ? type : undefined;
}

function oneOf<T extends string>(known: Record<string, T>, value: unknown): T | undefined {
  return Object.values(known).find((word) => word === value);
}
