// Debug mode, the text message for old front ends, limits, keys, other origins, and a server that
// shuts down.
import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { describe, test } from "node:test";

import { startGateway } from "../../../testing/gateway.mjs";
import { capstan, clients, listen, tokens, types } from "../support/clients.mjs";

const each = (name, body) => {
  for (const [client, { run, ...traits }] of Object.entries(clients)) {
    test(`${client}: ${name}`, { timeout: 60_000 }, (t) => body(t, run, traits));
  }
};

/** A gateway for one test. */
async function gatewayFor(t, options) {
  const gateway = await startGateway(options);
  t.after(() => gateway.stop());
  return gateway;
}

describe("modes of a gateway", { concurrency: true }, () => {
  each("debug mode names the type of an unknown failure", async (t, run) => {
    const said = listen();
    const gateway = await gatewayFor(t, { args: ["--debug"] });
    const { error } = await run(gateway.endpoint, "/panic");
    assert.equal(error.code, "AGENT_EXECUTION_ERROR");
    assert.ok(capstan(error).details.error_type, JSON.stringify(error));
    assert.deepEqual(said, []);
  });

  each("the text message of the switch stands before RUN_ERROR", async (t, run) => {
    const said = listen();
    const gateway = await gatewayFor(t, { config: "agui_error_text = true\n" });
    const { events, answer } = await run(gateway.endpoint, "/fault timeout");
    assert.deepEqual(types(events).slice(-4), [
      "TEXT_MESSAGE_START",
      "TEXT_MESSAGE_CONTENT",
      "TEXT_MESSAGE_END",
      "RUN_ERROR",
    ]);
    assert.equal(answer.length, 2);
    assert.deepEqual(said, []);
  });

  each("a limit is a RUN_ERROR with the true wait", async (t, run) => {
    const said = listen();
    const gateway = await gatewayFor(t, { config: "[limits]\nrequests_per_minute = 1\n" });
    await run(gateway.endpoint, "/tokens 1");
    const { error } = await run(gateway.endpoint, "/tokens 1");
    assert.equal(error.code, "RATE_LIMITED");
    assert.ok(capstan(error).retry_after >= 1 && capstan(error).retry_after <= 60);
    assert.deepEqual(said, []);
  });

  each("a missing key is an HTTP status", async (t, run) => {
    listen();
    const hash = createHash("sha256").update("sk_test").digest("hex");
    const gateway = await gatewayFor(t, {
      config: `[[tenants]]\nname = "a"\nkeys = ["sha256:${hash}"]\n`,
    });
    const { thrown } = await run(gateway.endpoint, "/tokens 1");
    assert.match(String(thrown), /401/);
    const { answer } = await run(gateway.endpoint, "/tokens 1", {
      headers: { Authorization: "Bearer sk_test" },
    });
    assert.deepEqual(answer, [tokens(1)]);
  });

  each("a server that goes down ends the run in types", async (t, run) => {
    const said = listen();
    const gateway = await gatewayFor(t, { config: "[timeouts]\ndrain = 0.1\n" });
    const onEvent = (event) => event.type === "RUN_STARTED" && gateway.child.kill("SIGTERM");
    const { events, error } = await run(gateway.endpoint, "/hang", { onEvent });
    assert.deepEqual(types(events), ["RUN_STARTED", "RUN_ERROR"]);
    assert.equal(capstan(error).kind, "run_interrupted");
    await gateway.ended;
    assert.deepEqual(said, []);
  });

  test("a page of another origin may run and resume where it is allowed to", async (t) => {
    listen();
    const origin = "https://app.example";
    const gateway = await gatewayFor(t, { config: `cors_origins = ["${origin}"]\n` });
    const preflight = await fetch(gateway.endpoint, {
      method: "OPTIONS",
      headers: {
        Origin: origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,last-event-id,x-run-id,authorization",
      },
    });
    assert.equal(preflight.headers.get("access-control-allow-origin"), origin);
    const allowed = preflight.headers.get("access-control-allow-headers");
    for (const name of ["content-type", "last-event-id", "x-run-id", "authorization"])
      assert.ok(allowed.includes(name), name);
    const fromPage = (url, init) =>
      fetch(url, { ...init, headers: { ...init.headers, Origin: origin } });
    for (const { run } of Object.values(clients)) {
      const { answer } = await run(gateway.endpoint, "/tokens 3", { fetch: fromPage });
      assert.deepEqual(answer, [tokens(3)]);
    }
    const foreign = (url, init) =>
      fetch(url, { ...init, headers: { ...init.headers, Origin: "https://evil.example" } });
    for (const { run } of Object.values(clients)) {
      assert.match(
        String((await run(gateway.endpoint, "/tokens 3", { fetch: foreign })).thrown),
        /403/,
      );
    }
  });

  test("a stream of either face can be watched through the other", async (t) => {
    const gateway = await gatewayFor(t);
    const runId = randomUUID();
    const { runId: key } = await clients["@ag-ui/client 1.0.0"].run(gateway.endpoint, "/tokens 2", {
      runId,
    });
    const { streams } = await (await fetch(`${gateway.url}/v1/streams`)).json();
    const { stream_id } = streams.find((s) => s.request_id === key);
    const cap = await (await fetch(`${gateway.url}/v1/streams/${stream_id}?face=cap`)).text();
    assert.match(cap, /"op":"DELTA".*"p":"tok1 "/);
    const agUi = await (
      await fetch(`${gateway.url}/v1/streams/${stream_id}?face=ag-ui&after=0`)
    ).text();
    assert.match(agUi, /"type":"RUN_FINISHED"/);
  });
});
