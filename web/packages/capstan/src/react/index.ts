"use client";
// The React parts. They have state, so server components must import them as client components.
export { useSecondsLeft } from "./countdown.js";
export {
  ErrorHandler,
  type ErrorHandlerProps,
  type SubscribableAgent,
  useErrorHandler,
} from "./ErrorHandler.js";
export {
  Description,
  type Notification,
  notificationOf,
  type Notify,
  RetryButton,
} from "./notify.js";
export {
  type AGUIErrorHandler,
  type AGUIErrorHandlerOptions,
  useAGUIErrorHandler,
} from "./use-ag-ui-error-handler.js";
export {
  type CapStream,
  type CapStreamAnswer,
  type CapStreamOptions,
  type CapStreamState,
  useCapStream,
} from "./use-cap-stream.js";
