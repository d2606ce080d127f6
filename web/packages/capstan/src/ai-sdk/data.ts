// The content of `data-…` parts: `UIMessage<unknown, CapstanData>`.
import type {
  CitationBlock,
  CloseReport,
  MediaCarousel,
  ProgressUpdate,
  StreamError,
  UserErrorData,
} from "../generated/wire.js";

/**
 * The data of our parts, by the name after `data-`. Those that begin with `capstan-` are about the
 * run, not the answer.
 */
export type CapstanData = {
  /** A step of work; one of the same label takes its place. */
  progress: ProgressUpdate;
  citations: CitationBlock;
  media: MediaCarousel;
  /** A failure for the person's eyes, after which the agent carries on. */
  "user-error": UserErrorData;
  /** Any other event of the agent's, as it came. */
  event: { type?: string; data?: unknown };
  "capstan-warning": StreamError;
  /** Transient: an attempt failed, and the gateway makes the next one. */
  "capstan-attempt": StreamError;
  /** Transient: why the chat ends in error. */
  "capstan-error": StreamError;
  /** Transient: how the run ended, with what it used. */
  "capstan-close": CloseReport;
};
