// Decodes packets from JSON: strictly for profile v1, leniently for profile v2. Errors name the
// place.
import { isUuid } from "./cursor.js";
import { ErrorSeverity, type StreamError, type StreamPacket } from "./generated/wire.js";
import { asObject, defined, isObject, type JsonObject, parseJson } from "./text.js";

/** The event name of our frames. */
export const EVENT_NAME = "stream.packet";

const OPS = ["DELTA", "EVENT", "ERROR", "CLOSE"] as const;
type Op = (typeof OPS)[number];

const TIME =
  /^(\d{4})-(\d\d)-(\d\d)[Tt\x20](\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;

/** Text that is not a packet. */
export class DecodeError extends Error {
  override readonly name = "DecodeError";
}

/** A packet of profile v2. Its position is optional. */
export interface PlacelessPacket {
  stream_id: string | undefined;
  seq: number | undefined;
  t: string | undefined;
  op: Op;
  p: unknown;
}

/** Decodes a packet of profile v1. Throws {@link DecodeError}. */
export function decodePacket(text: string): StreamPacket {
  const packet = document(text);
  const { stream_id, seq, op, t, p } = packet;
  refuseUnknown(packet, ["stream_id", "seq", "op", "t", "p"], "");
  if (typeof stream_id !== "string" || !isUuid(stream_id))
    throw wrong("stream_id", "expected a UUID", stream_id);
  if (!isSeq(seq)) throw wrong("seq", "expected an integer from 0", seq);
  const known = OPS.find((name) => name === op);
  if (known === undefined) throw wrong("op", `expected ${OPS.join(", ")}`, op);
  if (typeof t !== "string" || !isTime(t)) throw wrong("t", "expected RFC 3339 with an offset", t);
  return {
    stream_id: stream_id.toLowerCase(),
    seq,
    op: known,
    t,
    p: payload(known, p),
  } as StreamPacket;
}

/** Decodes a packet of profile v2 to the types of v1. Throws {@link DecodeError}. */
export function decodePacketV2(text: string): PlacelessPacket {
  const packet = document(text);
  const { stream_id, seq, op, t } = packet;
  const known = OPS.find((name) => name.toLowerCase() === op);
  if (known === undefined) throw wrong("op", "expected delta, event, error or close", op);
  return {
    stream_id:
      typeof stream_id === "string" && isUuid(stream_id) ? stream_id.toLowerCase() : undefined,
    seq: isSeq(seq) ? seq : undefined,
    t: typeof t === "string" && isTime(t) ? t : undefined,
    op: known,
    p: payloadV2(known, packet["p"]),
  };
}

function document(text: string): JsonObject {
  const value = parseJson(text);
  if (value === undefined) throw new DecodeError("document: not JSON");
  if (!isObject(value)) throw wrong("document", "expected an object", value);
  return value;
}

function payload(op: Op, p: unknown): unknown {
  switch (op) {
    case "DELTA":
      if (typeof p === "string") return p;
      throw wrong("p", "expected a string", p);
    case "EVENT":
      if (isObject(p)) return p;
      throw wrong("p", "expected an object", p);
    case "ERROR":
      return streamError(p, ErrorSeverity, true);
    case "CLOSE":
      if (typeof p === "string" || isObject(p)) return p;
      throw wrong("p", "expected a string or an object", p);
  }
}

function payloadV2(op: Op, p: unknown): unknown {
  if (op === "EVENT" && typeof p === "string") return { data: p };
  if (op === "EVENT" && (p === null || p === undefined)) return {};
  if (op === "CLOSE" && (p === null || p === undefined)) return "completed";
  if (op === "ERROR") return streamError(p, { FATAL: "fatal", TRANSIENT: "transient" }, false);
  return payload(op, p);
}

/** `spellings`: the names of severities in the profile. */
function streamError(
  p: unknown,
  spellings: Partial<Record<ErrorSeverity, string>>,
  isStrict: boolean,
): StreamError {
  if (!isObject(p))
    throw wrong("p", "expected a StreamError object {code, message, severity, details?}", p);
  if (isStrict) refuseUnknown(p, ["code", "message", "severity", "details"], "p.");
  const { code, message, severity, details } = p;
  if (typeof code !== "string") throw wrong("p.code", "expected a string", code);
  if (typeof message !== "string") throw wrong("p.message", "expected a string", message);
  const known = Object.values(ErrorSeverity).find(
    (name) => spellings[name] !== undefined && spellings[name] === severity,
  );
  if (known === undefined)
    throw wrong("p.severity", `expected ${Object.values(spellings).join(", ")}`, severity);
  if (details !== undefined && details !== null && !isObject(details))
    throw wrong("p.details", "expected an object", details);
  return defined<StreamError>({ code, message, severity: known, details: asObject(details) });
}

/** Above 2^53, numbers lose digits, and with them their order. */
function isSeq(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function isTime(text: string): boolean {
  const [, year, month, day, hour, minute, second] = TIME.exec(text) ?? [];
  if (year === undefined || Number(year) === 0) return false;
  const days = new Date(Date.UTC(2000 + (Number(year) % 400), Number(month), 0)).getUTCDate();
  const isDate =
    Number(month) >= 1 && Number(month) <= 12 && Number(day) >= 1 && Number(day) <= days;
  return isDate && Number(hour) < 24 && Number(minute) < 60 && Number(second) < 60;
}

function refuseUnknown(object: JsonObject, known: readonly string[], place: string): void {
  const other = Object.keys(object).find((name) => !known.includes(name));
  if (other !== undefined) throw new DecodeError(`${place}${other}: unknown member`);
}

function wrong(place: string, expected: string, found: unknown): DecodeError {
  return new DecodeError(`${place}: ${expected}, found ${kindOf(found)}`);
}

function kindOf(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : JSON.stringify(value).slice(0, 60);
}
