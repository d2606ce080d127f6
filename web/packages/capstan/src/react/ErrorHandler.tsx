// `<ErrorHandler agent={…}>`: shows the failures of an AG-UI agent. The canonical error codes
// live in ag-ui-error-codes.ts.
import { createContext, type ReactNode, useContext, useEffect } from "react";

import {
  type AGUIErrorHandler,
  type AGUIErrorHandlerOptions,
  useAGUIErrorHandler,
} from "./use-ag-ui-error-handler.js";

/** The part of an AG-UI agent that is needed. `HttpAgent` of either published line fits. */
export interface SubscribableAgent {
  subscribe(subscriber: {
    onRunErrorEvent?: (params: { event: unknown }) => void;
    onRunFailed?: (params: { error: Error }) => void;
  }): { unsubscribe: () => void };
}

export interface ErrorHandlerProps extends AGUIErrorHandlerOptions {
  /** The agent whose failures are shown. Without one, children use {@link useErrorHandler}. */
  agent?: SubscribableAgent | null;
  children?: ReactNode | ((handler: AGUIErrorHandler) => ReactNode);
}

const Context = createContext<AGUIErrorHandler | null>(null);

/**
 * Shows the failures of an agent to the user. Mount sonner's `<Toaster />` once, or pass `notify`.
 */
export function ErrorHandler({ agent, children, ...options }: ErrorHandlerProps): ReactNode {
  const handler = useAGUIErrorHandler(options);
  useAgentErrors(agent ?? null, handler.handleError);
  return (
    <Context.Provider value={handler}>
      {typeof children === "function" ? children(handler) : children}
    </Context.Provider>
  );
}

/**
 * The handler of the nearest {@link ErrorHandler}; its `handleError` fits CopilotKit's `onError`.
 */
export function useErrorHandler(): AGUIErrorHandler {
  const handler = useContext(Context);
  if (!handler) throw new Error("useErrorHandler: there is no <ErrorHandler> above this component");
  return handler;
}

function useAgentErrors(
  agent: SubscribableAgent | null,
  handleError: (error: unknown) => void,
): void {
  useEffect(() => {
    if (!agent) return;
    // A RUN_ERROR also fails the run. The event has more details, so the failure after it is not
    // shown.
    let shown: unknown;
    const { unsubscribe } = agent.subscribe({
      onRunErrorEvent: ({ event }) => {
        shown = event;
        handleError(event);
      },
      onRunFailed: ({ error }) => {
        if (shown === undefined && error.name !== "AbortError") handleError(error);
        shown = undefined;
      },
    });
    return () => unsubscribe();
  }, [agent, handleError]);
}
