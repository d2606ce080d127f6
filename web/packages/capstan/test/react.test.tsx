// @vitest-environment happy-dom
// The hook, the component and the stream as a user sees them.
import { act, cleanup, fireEvent, render, renderHook, screen } from "@testing-library/react";
import { Toaster } from "sonner";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import { AGUIErrorCode, ERROR_STATUS, ERROR_MESSAGES } from "../src/ag-ui-error-codes.js";
import { CapClient } from "../src/client.js";
import { ErrorHandler, useAGUIErrorHandler, useCapStream } from "../src/react/index.js";
import { frame } from "./server.js";

const limited = {
  code: "RATE_LIMITED",
  message: "Slow down.",
  http_status: 429,
  details: {},
  retry_after: 2,
};

beforeEach(() => vi.useFakeTimers());
afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

const pass = (ms: number) => act(() => vi.advanceTimersByTimeAsync(ms));

describe("useAGUIErrorHandler", () => {
  test("notify gets what the toast of shadcn takes, for each of the ten codes", () => {
    const notify = vi.fn();
    const { result } = renderHook(() => useAGUIErrorHandler({ notify }));
    for (const code of Object.values(AGUIErrorCode)) {
      act(() =>
        result.current.handleError({
          code,
          message: "What happened.",
          http_status: ERROR_STATUS[code],
          details: {},
        }),
      );
      const variant = ERROR_STATUS[code] >= 500 ? "destructive" : "default";
      expect(notify).toHaveBeenLastCalledWith({
        title: ERROR_MESSAGES[code],
        description: "What happened.",
        variant,
      });
    }
  });

  test("a wait is told, counted down, and over at zero", async () => {
    const notify = vi.fn();
    const onRetry = vi.fn();
    const { result } = renderHook(() => useAGUIErrorHandler({ notify, onRetry }));
    act(() => result.current.handleError(limited));
    expect(notify.mock.calls[0]?.[0].description).toBe("Slow down. Please retry in 2 seconds.");
    expect(result.current).toMatchObject({ secondsLeft: 2, canRetry: false });
    act(() => result.current.retry());
    expect(onRetry).not.toHaveBeenCalled();
    await pass(1100);
    expect(result.current.secondsLeft).toBe(1);
    await pass(1000);
    expect(result.current).toMatchObject({ secondsLeft: 0, canRetry: true });
    act(() => result.current.retry());
    expect(onRetry).toHaveBeenCalledExactlyOnceWith(limited);
    expect(result.current.error).toBeNull();
  });

  test("handleError, retry and dismiss stay the same, whatever the options", async () => {
    const { result, rerender } = renderHook(() =>
      useAGUIErrorHandler({ notify: () => {}, onError: () => {} }),
    );
    const { handleError, retry, dismiss } = result.current;
    act(() => handleError(limited));
    rerender();
    await pass(3000);
    expect(result.current).toMatchObject({ handleError, retry, dismiss });
    expect(result.current.handleError).toBe(handleError);
  });

  test("each listener hears of its own failures", () => {
    const heard: string[] = [];
    const options = {
      notify: () => {},
      onError: () => void heard.push("error"),
      onRetryableError: () => void heard.push("retryable"),
      onUserActionRequired: () => void heard.push("user"),
    };
    const { result } = renderHook(() => useAGUIErrorHandler(options));
    act(() => result.current.handleError(limited));
    act(() =>
      result.current.handleError({ code: "TENANT_REQUIRED", message: "Who?", http_status: 401 }),
    );
    expect(heard).toEqual(["error", "retryable", "error", "user"]);
  });

  test("takes CopilotKit's onError, and what nobody can read", () => {
    const notify = vi.fn();
    const { result } = renderHook(() => useAGUIErrorHandler({ notify }));
    const event = { type: "RUN_ERROR", ...limited };
    act(() =>
      result.current.handleError({
        code: "agent_run_error_event",
        error: new Error("x"),
        context: { event },
      }),
    );
    expect(notify.mock.lastCall?.[0].title).toBe("Too many requests. Please wait.");
    act(() => result.current.handleError(undefined));
    expect(notify.mock.lastCall?.[0]).toMatchObject({
      title: "Something went wrong. Please try again.",
      variant: "destructive",
    });
    act(() => result.current.dismiss());
    expect(result.current.error).toBeNull();
  });
});

/** An agent that fails on command. */
function fakeAgent() {
  type Subscriber = {
    onRunErrorEvent?: (p: { event: unknown }) => void;
    onRunFailed?: (p: { error: Error }) => void;
  };
  const subscribers = new Set<Subscriber>();
  return {
    subscribers,
    subscribe(subscriber: Subscriber) {
      subscribers.add(subscriber);
      return { unsubscribe: () => void subscribers.delete(subscriber) };
    },
    fail(event: unknown) {
      for (const subscriber of subscribers) {
        subscriber.onRunErrorEvent?.({ event });
        subscriber.onRunFailed?.({ error: new Error("the run failed") });
      }
    },
  };
}

describe("ErrorHandler", () => {
  test("a toast shows title, message, countdown, and a retry at zero", async () => {
    const agent = fakeAgent();
    const onRetry = vi.fn();
    render(
      <>
        <ErrorHandler agent={agent} onRetry={onRetry} />
        <Toaster />
      </>,
    );
    act(() => agent.fail({ type: "RUN_ERROR", ...limited }));
    await pass(50);
    expect(screen.getByRole("status").textContent).toBe("Too many requests. Please wait.");
    expect(screen.getByRole("timer").textContent).toBe("Please retry in 2 seconds.");
    const button = screen.getByRole("button", { name: "Retry" });
    expect(button.getAttribute("aria-disabled")).toBe("true");
    const toast = document.querySelector("[data-sonner-toast]");
    expect(toast?.textContent?.match(/\d+ s/g), "the wait is said once").toEqual(["2 s"]);
    fireEvent.click(button);
    expect(onRetry).not.toHaveBeenCalled();
    await pass(1100);
    expect(screen.getByRole("timer").textContent).toBe("Please retry in 1 second.");
    await pass(1000);
    expect(screen.queryByRole("timer")).toBeNull();
    expect(button.getAttribute("aria-disabled")).toBe("false");
    fireEvent.click(button);
    expect(onRetry).toHaveBeenCalledOnce();
  });

  test("what the server got wrong is an alert, and a failed run is told once", async () => {
    const agent = fakeAgent();
    render(
      <>
        <ErrorHandler agent={agent} />
        <Toaster />
      </>,
    );
    act(() =>
      agent.fail({
        type: "RUN_ERROR",
        code: "AGENT_EXECUTION_ERROR",
        message: "Oops.",
        http_status: 500,
      }),
    );
    await pass(50);
    expect(screen.getAllByRole("alert").map((alert) => alert.textContent)).toEqual([
      "Something went wrong. Please try again.",
    ]);
    expect(screen.queryByRole("button", { name: /retry/i })).toBeNull();
  });

  test("leaving unsubscribes, and children can see the handler", () => {
    const agent = fakeAgent();
    const { unmount } = render(
      <ErrorHandler agent={agent} notify={() => {}}>
        {({ error }) => <p>{error?.message ?? "fine"}</p>}
      </ErrorHandler>,
    );
    expect(screen.getByText("fine")).toBeTruthy();
    act(() => agent.fail({ type: "RUN_ERROR", ...limited }));
    expect(screen.getByText("Slow down.")).toBeTruthy();
    unmount();
    expect(agent.subscribers.size).toBe(0);
  });
});

describe("useCapStream", () => {
  /** Answers each request with the next text; `null` is a lost connection. */
  const client = (...answers: (string | null)[]) => {
    const fetch = async () => {
      const text = answers.shift();
      if (text === null || text === undefined) throw new TypeError("network");
      return new Response(text, { headers: { "content-type": "text/event-stream" } });
    };
    return new CapClient("http://test", "", { fetch, backoff: { jitter: false } });
  };

  test("goes from idle through streaming and retrying to closed", async () => {
    const { result } = renderHook((c) => useCapStream(c), {
      initialProps: client(
        frame(1, "DELTA", "Hel"),
        frame(2, "DELTA", "lo") + frame(3, "CLOSE", "completed"),
      ),
    });
    expect(result.current.state.status).toBe("idle");
    act(() => result.current.send("hi"));
    expect(result.current.state.status).toBe("streaming");
    await pass(100);
    expect(result.current.state).toMatchObject({
      status: "retrying",
      text: "Hel",
      because: "the stream ended without CLOSE",
    });
    await pass(1000);
    expect(result.current.state).toMatchObject({
      status: "closed",
      text: "Hello",
      reason: "completed",
    });
    act(() => result.current.reset());
    expect(result.current.state).toEqual({ status: "idle" });
  });

  test("a failure keeps what was said, and is handed on", async () => {
    const onError = vi.fn();
    const error = { code: "content_refused", message: "No.", severity: "FATAL" };
    const { result } = renderHook((c) => useCapStream(c, { onError }), {
      initialProps: client(frame(1, "DELTA", "Well") + frame(2, "ERROR", error)),
    });
    act(() => result.current.send("hi"));
    await pass(100);
    expect(result.current.state).toMatchObject({
      status: "failed",
      text: "Well",
      error: { code: "content_refused" },
    });
    expect(onError).toHaveBeenCalledOnce();
  });

  test("a retry goes on with the same run where it stood", async () => {
    const wait = {
      code: "upstream_error",
      message: "Later.",
      severity: "TRANSIENT",
      details: { retry_after: 60 },
    };
    const sent: { body: unknown; cursor: string | null }[] = [];
    const answers = [
      frame(1, "DELTA", "Hel") + frame(2, "ERROR", wait),
      frame(2, "ERROR", wait) + frame(3, "DELTA", "lo") + frame(4, "CLOSE", "completed"),
    ];
    const fetch = async (_: string, init: RequestInit) => {
      sent.push({ body: init.body, cursor: new Headers(init.headers).get("last-event-id") });
      return new Response(answers.shift(), { headers: { "content-type": "text/event-stream" } });
    };
    const { result } = renderHook((c) => useCapStream(c), {
      initialProps: new CapClient("http://test", "", { fetch }),
    });
    expect(result.current.retry()).toBe(false);
    act(() => result.current.send("hi"));
    await pass(100);
    expect(result.current.state).toMatchObject({
      status: "failed",
      text: "Hel",
      error: { retryAfter: 60 },
    });
    act(() => void result.current.retry());
    await pass(100);
    expect(result.current.state).toMatchObject({ status: "closed", text: "Hello" });
    expect(sent[1]?.body).toBe(sent[0]?.body);
    expect(sent[1]?.cursor).toMatch(/:1$/);
    expect(result.current.retry()).toBe(false);
  });

  test("a run that was left says nothing more", async () => {
    const { result, unmount } = renderHook((c) => useCapStream(c), {
      initialProps: client(
        frame(1, "DELTA", "old"),
        frame(1, "DELTA", "new") + frame(2, "CLOSE", "completed"),
      ),
    });
    act(() => result.current.send("one"));
    await pass(100);
    act(() => result.current.send("two"));
    await pass(100);
    expect(result.current.state).toMatchObject({ status: "closed", text: "new" });
    unmount();
  });
});
