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
 * The data of our parts, by the name after `data-`. Names with `capstan-` are about the run, not
 * the answer.
 */
export type CapstanData = {
  /** A step of work. A later one with the same label replaces it. */
  progress: ProgressUpdate;
  citations: CitationBlock;
  media: MediaCarousel;
  /** A failure for the user to see, after which the agent continues. */
  "user-error": UserErrorData;
  /** Any other event of the agent, unchanged. */
  event: { type?: string; data?: unknown };
  "capstan-warning": StreamError;
  /** Transient: an attempt failed, and the gateway makes the next one. */
  "capstan-attempt": StreamError;
  /** Transient: why the chat ended in error. */
  "capstan-error": StreamError;
  /** Transient: how the run ended, and its usage. */
  "capstan-close": CloseReport;
};
