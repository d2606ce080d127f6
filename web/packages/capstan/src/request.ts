// Requests: envelopes in either profile, and ids for them.
import type { ServiceRequest, UserContext } from "./generated/wire.js";
import type { ServiceRequest as ServiceRequestV2 } from "./generated/wire-v2.js";

/** The agent id for the default agent. */
const NIL = "00000000-0000-0000-0000-000000000000";

/** A request of either profile. The answer has the same profile. */
export type Envelope = ServiceRequest | ServiceRequestV2;

/** A fresh UUID of version 7. `crypto.randomUUID` would need a secure page; this works on any. */
export function newId(now: number = Date.now()): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  for (let at = 0; at < 6; at += 1) bytes[at] = Math.floor(now / 2 ** (8 * (5 - at))) % 256;
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/** A user of the free tier who reads English. */
export function user(user_id: string): UserContext {
  return { user_id, tier: "free", locale: "en-US" };
}

/** A request with plain text, which is its own root. */
export function question(conversation: string, message: string, who: UserContext): ServiceRequest {
  const request_id = newId();
  const now = new Date().toISOString();
  return {
    request_id: newId(),
    context: {
      session_id: conversation,
      agent_id: NIL,
      user: who,
      trace: { trace_id: newId(), span_id: newId() },
      permissions: [],
      created_at: now,
    },
    payload: {
      request_id,
      session_id: conversation,
      root_request_id: request_id,
      timestamp: now,
      payload: { query: message },
      metadata: {},
    },
  };
}

/** An answer to an interrupt: a question that a run asked at its end. */
export interface ResumeEntry {
  /** The `id` of the INTERRUPT event's data. */
  interruptId: string;
  /** `cancelled`: there will be no answer. */
  status: "resolved" | "cancelled";
  /** The answer; any JSON. */
  payload?: unknown;
}

/** Makes a request answer the questions of a conversation's last run, in either profile. */
export function answering(request: Envelope, resume: readonly ResumeEntry[]): Envelope {
  if ("query" in request.payload)
    return { ...request, payload: { ...request.payload, query: "", meta: { resume } } } as Envelope;
  return { ...request, payload: { ...request.payload, payload: { resume } } } as Envelope;
}

/** The same in profile v2. */
export function questionV2(
  conversation: string,
  message: string,
  who: UserContext,
): ServiceRequestV2 {
  const request_id = newId();
  return {
    request_id,
    context: { session_id: conversation, user: { id: who.user_id, name: who.user_id } },
    payload: {
      request_id,
      root_request_id: request_id,
      query: message,
      files: [],
      conversation_id: conversation,
      meta: {},
    },
  };
}
