// The package without its React parts.
export * from "./ag-ui-error-codes.js";
export { ChatStream } from "./chat.js";
export { type CallOptions, CapClient, type Options } from "./client.js";
export { type Cursor, parseCursor } from "./cursor.js";
export { type DomainIcon, type DomainTone, type DomainView, viewUserError } from "./domain.js";
export {
  CAPConnectionError,
  CAPError,
  CAPProtocolError,
  CAPRuntimeError,
  type Failure,
} from "./errors.js";
export { type EventView, STREAM_RESET, viewEvent } from "./event.js";
export { CATALOGUE, type Fault, type FaultCode } from "./generated/faults.js";
export type * from "./generated/wire.js";
export { ErrorDomain, ErrorSeverity } from "./generated/wire.js";
export { type Action, type Head, Machine, type Refusal } from "./machine.js";
export {
  type Backoff,
  DEFAULT_POLICY,
  type HealingOptions,
  type Policy,
  type Profile,
} from "./machine/backoff.js";
export { describeNotice, type Notice } from "./notice.js";
export { DecodeError, decodePacket, EVENT_NAME } from "./packet.js";
export { type Envelope, newId, question, questionV2, user, type ResumeEntry } from "./request.js";
export { resumableFetch, type ResumableFetchOptions } from "./resumable-fetch.js";
export { Decoder, type Frame, FrameTooLarge, hasData } from "./sse.js";
export { PacketStream } from "./stream.js";
export { type Block, Transcript } from "./transcript.js";
export type { Fetch } from "./wait.js";
