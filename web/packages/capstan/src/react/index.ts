"use client";
// The React parts. They hold state, so that a page of server components has to know them as
// clients.
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
