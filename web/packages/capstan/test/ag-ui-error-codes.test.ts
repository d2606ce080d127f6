// The canonical module: the story's ten codes, and failures in every form parsed to one type.
import { describe, expect, test } from "vitest";

import {
  AGUIErrorCode,
  type AGUIErrorData,
  ERROR_MESSAGES,
  ERROR_STATUS,
  ERROR_TITLES,
  formatRetryAfter,
  getDisplayMessage,
  getErrorTitle,
  getVariant,
  isRetryableError,
  parseAGUIError,
  requiresUserAction,
} from "../src/ag-ui-error-codes.js";
import { CATALOGUE } from "../src/generated/faults.js";
import { CAPConnectionError, refusal, streamFailure } from "../src/errors.js";
import { viewUserError } from "../src/domain.js";
import { capstan } from "./vectors.js";

const STATUS = {
  AGENT_EXECUTION_ERROR: 500,
  TENANT_REQUIRED: 401,
  TENANT_UNAUTHORIZED: 403,
  SESSION_NOT_FOUND: 404,
  RATE_LIMITED: 429,
  TIMEOUT: 504,
  INVALID_REQUEST: 400,
  CAPABILITY_NOT_FOUND: 404,
  UPSTREAM_ERROR: 502,
  SERVICE_UNAVAILABLE: 503,
};
/** The texts of story 22-B2. */
const WORDS = {
  AGENT_EXECUTION_ERROR: "Something went wrong. Please try again.",
  TENANT_REQUIRED: "Authentication required.",
  TENANT_UNAUTHORIZED: "Access denied.",
  SESSION_NOT_FOUND: "Session expired. Please refresh.",
  RATE_LIMITED: "Too many requests. Please wait.",
  TIMEOUT: "Request timed out. Please try again.",
  INVALID_REQUEST: "Invalid request. Please check your input.",
  CAPABILITY_NOT_FOUND: "Feature not available.",
  UPSTREAM_ERROR: "External service unavailable.",
  SERVICE_UNAVAILABLE: "Service temporarily unavailable.",
};
/** A word of each title in the catalogue that shows the story's meaning. */
const MEANING = {
  AGENT_EXECUTION_ERROR: /went wrong/,
  TENANT_REQUIRED: /Sign in/,
  TENANT_UNAUTHORIZED: /Not allowed/,
  SESSION_NOT_FOUND: /No such conversation/,
  RATE_LIMITED: /Too many requests/,
  TIMEOUT: /Time ran out/,
  INVALID_REQUEST: /Invalid request/,
  CAPABILITY_NOT_FOUND: /not available/,
  UPSTREAM_ERROR: /External service/,
  SERVICE_UNAVAILABLE: /unavailable/,
};

test("each of the ten codes has its status and a title that means what the story means", () => {
  expect(ERROR_STATUS).toEqual(STATUS);
  for (const code of Object.values(AGUIErrorCode))
    expect(ERROR_TITLES[code]).toMatch(MEANING[code]);
});

test("what a toast says of each code are the words of the story, whatever finer kind it is", () => {
  expect(ERROR_MESSAGES).toEqual(WORDS);
  for (const { code: kind, agui_code: code } of CATALOGUE) {
    expect(
      getErrorTitle({ code, message: "Because.", http_status: ERROR_STATUS[code], kind }),
    ).toBe(WORDS[code]);
    expect(getErrorTitle({ code: kind, message: "Because.", http_status: 500 })).toBe(WORDS[code]);
  }
});

test("three codes mean try again, five want the user", () => {
  const codes = Object.values(AGUIErrorCode);
  expect(codes.filter(isRetryableError)).toEqual([
    "RATE_LIMITED",
    "TIMEOUT",
    "SERVICE_UNAVAILABLE",
  ]);
  expect(codes.filter(requiresUserAction)).toEqual([
    "TENANT_REQUIRED",
    "TENANT_UNAUTHORIZED",
    "SESSION_NOT_FOUND",
    "INVALID_REQUEST",
    "CAPABILITY_NOT_FOUND",
  ]);
});

test("the finer kind's own flag wins over its code's", () => {
  const full = {
    code: "RATE_LIMITED",
    message: "full",
    http_status: 429,
    kind: "message_limit_exceeded",
  };
  expect(isRetryableError(full)).toBe(false);
  expect(requiresUserAction(full)).toBe(true);
  expect(isRetryableError({ ...full, retryable: true })).toBe(true);
  expect(
    isRetryableError({
      code: "UPSTREAM_ERROR",
      message: "m",
      http_status: 502,
      kind: "upstream_error",
    }),
  ).toBe(true);
});

test("for an unknown code the title is the message", () => {
  expect(getErrorTitle({ code: "NOVEL", message: "Something new.", http_status: 500 })).toBe(
    "Something new.",
  );
  expect(getErrorTitle({ code: "NOVEL", message: "", http_status: 500 })).toBe(
    "Something went wrong. Please try again.",
  );
});

test("a code is one of the ten or any string", () => {
  const codes: AGUIErrorData["code"][] = [AGUIErrorCode.TIMEOUT, "NOVEL"];
  expect(codes.map(isRetryableError)).toEqual([true, false]);
});

test("waits are told in words and rounded up", () => {
  const words = [0, 1, 1.2, 60, 120, 121, 3600, 7200.1].map(formatRetryAfter);
  expect(words).toEqual([
    "0 seconds",
    "1 second",
    "2 seconds",
    "60 seconds",
    "120 seconds",
    "3 minutes",
    "60 minutes",
    "3 hours",
  ]);
});

test("a message tells when to come back", () => {
  const error = { code: "RATE_LIMITED", message: "Slow down.", http_status: 429, retry_after: 45 };
  expect(getDisplayMessage(error)).toBe("Slow down. Please retry in 45 seconds.");
  expect(getDisplayMessage(error, 0)).toBe("Slow down.");
  expect(getDisplayMessage({ ...error, message: "" }, 0)).toBe(
    "Request rate limit exceeded. Please wait before retrying.",
  );
});

test("destructive is what the server got wrong", () => {
  expect(getVariant({ code: "X", message: "", http_status: 500 })).toBe("destructive");
  expect(getVariant({ code: "X", message: "", http_status: 499 })).toBe("default");
});

test("a user error has an icon, a tone and a retry by its domain and flag", () => {
  const tool = { message: "m", domain: "tool", retryable: true } as const;
  expect(viewUserError(tool)).toEqual({
    icon: "wrench",
    tone: "warning",
    label: "Tool",
    retry: "Try again",
  });
  expect(viewUserError({ message: "m" })).toMatchObject({ icon: "server", retry: null });
  expect(viewUserError({ message: "m", domain: "novel" as "tool" }).icon).toBe("server");
});

describe("parseAGUIError", () => {
  const story = {
    code: "RATE_LIMITED",
    message: "Slow down.",
    http_status: 429,
    details: {},
    retry_after: 60,
  };

  test("reads the story's shape, as an object, as text, and as an event", () => {
    for (const input of [
      story,
      JSON.stringify(story),
      { type: "RUN_ERROR", ...story },
      { event: "RUN_ERROR", data: story },
    ]) {
      expect(parseAGUIError(input)).toEqual(story);
    }
  });

  test("reads what is kept under metadata only", () => {
    const capstan = {
      ...story,
      kind: "session_limit_exceeded",
      severity: "TRANSIENT",
      domain: "client",
      retryable: true,
      type: "/errors/x",
    };
    const event = {
      type: "RUN_ERROR",
      code: "RATE_LIMITED",
      message: "Slow down.",
      metadata: { capstan },
    };
    expect(parseAGUIError(event)).toEqual(capstan);
    expect(parseAGUIError(JSON.stringify(event))).toEqual(capstan);
  });

  test("reads every dialect of every fault", () => {
    for (const { code, agui_code } of CATALOGUE) {
      const [{ dialects }] = JSON.parse(capstan("errors", code, "--json"));
      for (const dialect of [dialects.run_error, dialects.problem, dialects.stream_error].filter(
        Boolean,
      )) {
        const error = parseAGUIError(dialect);
        expect(error, JSON.stringify(dialect)).toMatchObject({ code: agui_code, kind: code });
        expect(error?.http_status).toBe(ERROR_STATUS[agui_code]);
        expect(getErrorTitle(error!)).toBe(WORDS[agui_code]);
      }
    }
  });

  test("reads a foreign problem by its status", () => {
    expect(parseAGUIError({ title: "Nope", status: 429 })).toEqual({
      code: "RATE_LIMITED",
      message: "Nope",
      http_status: 429,
    });
    expect(parseAGUIError({ title: "Nope", status: 418 })).toMatchObject({
      code: "INVALID_REQUEST",
    });
  });

  test("reads CopilotKit's wrapper", () => {
    const event = { type: "RUN_ERROR", ...story };
    const wrapper = {
      code: "agent_run_error_event",
      error: new Error("Slow down."),
      context: { source: "onRunErrorEvent", event },
    };
    expect(parseAGUIError(wrapper)).toEqual(story);
    const plain = { code: "agent_run_failed", error: new Error("fetch failed"), context: {} };
    expect(parseAGUIError(plain)).toMatchObject({
      code: "AGENT_EXECUTION_ERROR",
      message: "fetch failed",
    });
  });

  test("reads what the client throws", () => {
    const failed = streamFailure({
      code: "upstream_timeout",
      message: "Late.",
      severity: "FATAL",
      details: { retry_after: 1.2 },
    });
    expect(parseAGUIError(failed)).toMatchObject({
      code: "TIMEOUT",
      kind: "upstream_timeout",
      retry_after: 2,
      severity: "FATAL",
    });
    const problem = { code: "tenant_required", title: "Sign in first", status: 401 };
    expect(parseAGUIError(refusal(401, JSON.stringify(problem), undefined))).toMatchObject({
      code: "TENANT_REQUIRED",
      http_status: 401,
    });
    expect(parseAGUIError(refusal(503, "", 7))).toMatchObject({
      code: "SERVICE_UNAVAILABLE",
      retry_after: 7,
    });
    expect(parseAGUIError(new CAPConnectionError("refused", 3))).toMatchObject({
      code: "SERVICE_UNAVAILABLE",
      message: "refused",
    });
  });

  test("reads what AG-UI's own client throws for a refused request", () => {
    const payload = '{"code":"tenant_unauthorized","title":"Not allowed","status":403}';
    const thrown = Object.assign(new Error(`HTTP 403: ${payload}`), { status: 403, payload });
    expect(parseAGUIError(thrown)).toMatchObject({
      code: "TENANT_UNAUTHORIZED",
      message: "Not allowed",
      http_status: 403,
    });
  });

  test("says nothing of what is no failure", () => {
    const cycle: Record<string, unknown> = {};
    cycle["event"] = cycle;
    for (const input of [
      null,
      undefined,
      7,
      "",
      "oops",
      "[]",
      [],
      {},
      { code: 5 },
      { message: "hello" },
      { code: "X" },
      cycle,
    ]) {
      expect(parseAGUIError(input)).toBeNull();
    }
  });
});
