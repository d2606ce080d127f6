// Complete runs, every kind of failure, attempts, and stops, as the published clients see them.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { startGateway } from "../../../testing/gateway.mjs";
import { resumingFetch } from "../support/resuming-fetch.mjs";
import { capstan, clients, listen, tokens, types } from "../support/clients.mjs";

const CODES = {
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

describe("whole runs", { concurrency: true }, () => {
  for (const [name, { run, isV1, isTanStack }] of Object.entries(clients)) {
    describe(name, { concurrency: true, timeout: 120_000 }, () => {
      let gateway;
      before(async () => (gateway = await startGateway()));
      after(() => gateway.stop());

      test("a run streams its text and finishes", async () => {
        const said = listen();
        const { events, answer, thrown } = await run(gateway.endpoint, "/tokens 20");
        assert.equal(thrown, undefined);
        assert.deepEqual(answer, [tokens(20)]);
        assert.deepEqual(types(events).slice(0, 2), ["RUN_STARTED", "TEXT_MESSAGE_START"]);
        assert.deepEqual(types(events).slice(-2), ["TEXT_MESSAGE_END", "RUN_FINISHED"]);
        assert.deepEqual(said, []);
      });

      test("presentation events become reasoning, steps, text and custom events", async () => {
        const said = listen();
        const { events, answer, thrown } = await run(gateway.endpoint, "/events");
        assert.equal(thrown, undefined);
        const custom = events.filter((e) => e.type === "CUSTOM").map((e) => e.name);
        assert.deepEqual(
          [...new Set(custom)],
          ["capstan.progress", "capstan.citations", "capstan.media", "capstan.user_error"],
        );
        for (const type of ["REASONING_MESSAGE_CONTENT", "STEP_STARTED", "STEP_FINISHED"])
          assert.ok(types(events).includes(type), type);
        assert.match(
          answer.join(""),
          /^Let me look for it\. .*### Capstan.*all there is to see\.$/s,
        );
        assert.deepEqual(said, []);
      });

      for (const [code, status] of Object.entries(CODES)) {
        test(`${code} arrives as the last event`, async () => {
          const said = listen();
          const { events, error, answer } = await run(gateway.endpoint, `/fault ${code}`);
          assert.equal(types(events).at(-1), "RUN_ERROR");
          assert.equal(error.code, code);
          assert.equal(capstan(error).http_status, status);
          assert.deepEqual(answer, [tokens(3)]);
          if (code === "RATE_LIMITED") assert.equal(capstan(error).retry_after, 60);
          if (!isV1) {
            assert.equal(error.http_status, status);
            assert.deepEqual(error.details, {});
          }
          assert.deepEqual(said, []);
        });
      }

      test("a panic says nothing about the inside", async () => {
        const said = listen();
        const { error } = await run(gateway.endpoint, "/panic");
        assert.equal(error.message, "An error occurred processing your request.");
        assert.deepEqual(capstan(error).details, {});
        assert.ok(!JSON.stringify(error).includes("asked to panic"));
        assert.deepEqual(said, []);
      });

      test("a warning does not stop the run", async () => {
        const said = listen();
        const { events, answer } = await run(gateway.endpoint, "/warn");
        assert.deepEqual(
          events.filter((e) => e.type === "CUSTOM").map((e) => e.name),
          ["capstan.warning"],
        );
        assert.deepEqual(answer, [
          "I asked two sources. One of them was slow, so this rests on the other.",
        ]);
        assert.deepEqual(said, []);
      });

      test("an attempt that the gateway repeats is told once", async () => {
        const said = listen();
        const steady = (await run(gateway.endpoint, "/flaky 0")).answer;
        const { events, answer, thrown } = await run(gateway.endpoint, "/flaky 1");
        assert.equal(thrown, undefined);
        assert.deepEqual(answer, steady);
        assert.ok(
          events.some(
            (e) =>
              e.type === "CUSTOM" && e.name === "capstan.warning" && e.value.details.attempt === 1,
          ),
        );
        assert.equal(types(events).at(-1), "RUN_FINISHED");
        assert.deepEqual(said, []);
      });

      test("an attempt that says something else replaces what was said", async () => {
        const said = listen();
        const { events, answer, thrown } = await run(gateway.endpoint, "/diverge");
        assert.equal(thrown, undefined);
        assert.ok(types(events).includes("MESSAGES_SNAPSHOT"));
        assert.deepEqual(answer, [
          "The answer, I am quite sure, depends on the question; " +
            "on second thoughts I should have asked for that before I spoke.",
        ]);
        assert.deepEqual(said, []);
      });

      test("a stopped run is finished, not failed", async () => {
        const said = listen();
        let stopped;
        const onEvent = async (event) => {
          if (event.type !== "RUN_STARTED" || stopped) return;
          const { streams } = await (await fetch(`${gateway.url}/v1/streams`)).json();
          const { stream_id } = streams.find((s) => s.request_id === event.runId);
          stopped = await (
            await fetch(`${gateway.url}/v1/streams/${stream_id}`, { method: "DELETE" })
          ).json();
        };
        const { events, thrown } = await run(gateway.endpoint, "/hang", { onEvent });
        assert.equal(thrown, undefined);
        const end = events.at(-1);
        assert.equal(end.type, "RUN_FINISHED");
        assert.deepEqual(end.outcome, isV1 ? { type: "cancelled" } : undefined);
        assert.equal(capstan(end).reason, "cancelled");
        assert.deepEqual(said, []);
      });

      test("a refusal before the run is a RUN_ERROR that the client can read", async () => {
        const said = listen();
        const { events, error } = await run(`${gateway.url}/v1/agents/nobody/ag-ui`, "Hi");
        assert.deepEqual(types(events), ["RUN_ERROR"]);
        assert.equal(error.code, "CAPABILITY_NOT_FOUND");
        assert.equal(capstan(error).kind, "agent_not_found");
        assert.deepEqual(said, []);
      });

      test("a run that waits is continued by the same input", async (t) => {
        if (isTanStack) return t.skip("every message of TanStack's is a new run");
        const said = listen();
        const steady = (await run(gateway.endpoint, "/flaky 0")).answer;
        const first = await run(gateway.endpoint, "/flaky 1 --wait 6");
        assert.equal(first.error.code, "UPSTREAM_ERROR");
        assert.equal(capstan(first.error).retry_after, 6);
        const { runId, threadId } = first;
        const again = await run(gateway.endpoint, "/flaky 1 --wait 6", { runId, threadId });
        assert.equal(again.thrown, undefined);
        assert.deepEqual(again.answer, steady);
        assert.equal(types(again.events).at(-1), "RUN_FINISHED");
        assert.deepEqual(said, []);
      });

      test("a client resumes at the cursor of RUN_ERROR", async (t) => {
        if (isTanStack) return t.skip("TanStack's client stops at RUN_ERROR");
        const said = listen();
        const steady = (await run(gateway.endpoint, "/flaky 0")).answer;
        const fetch = resumingFetch({ comeBack: true });
        const { events, answer, thrown } = await run(gateway.endpoint, "/flaky 1 --wait 6", {
          fetch,
        });
        assert.equal(thrown, undefined);
        assert.deepEqual(answer, steady, "one message, nothing doubled");
        const at = types(events).indexOf("RUN_ERROR");
        assert.deepEqual(types(events).slice(at, at + 3), [
          "RUN_ERROR",
          "RUN_STARTED",
          "TEXT_MESSAGE_START",
        ]);
        assert.equal(types(events).at(-1), "RUN_FINISHED");
        assert.deepEqual(said, []);
      });
    });
  }
});
