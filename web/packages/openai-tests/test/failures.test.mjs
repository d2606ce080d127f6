// Failures: the SDK's error class, and the number of its tries.
import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";

import OpenAI from "openai";

import { startGateway } from "../../../testing/gateway.mjs";
import { cutsOf, startCutter } from "../../ag-ui-tests/support/cutter.mjs";
import { chat, clientFor, counting, deltasOf, drain, runsOf } from "../support/openai.mjs";

const CLASSES = {
  400: OpenAI.BadRequestError,
  401: OpenAI.AuthenticationError,
  403: OpenAI.PermissionDeniedError,
  404: OpenAI.NotFoundError,
  409: OpenAI.ConflictError,
  429: OpenAI.RateLimitError,
  500: OpenAI.InternalServerError,
  502: OpenAI.InternalServerError,
  503: OpenAI.InternalServerError,
  504: OpenAI.InternalServerError,
};
/**
 * Statuses that differ from the catalogue's: a fault that a retry cannot fix must not have a status
 * that SDKs retry.
 */
const STATUSES = {
  stream_expired: 404,
  stream_lost: 404,
  context_length_exceeded: 400,
  content_refused: 400,
  answer_too_large: 400,
  stream_too_long: 400,
  interrupt_not_open: 400,
  upstream_quota: 429,
  model_not_found: 404,
  upstream_auth: 500,
};

// One after the other, because runs are counted.
describe("failures", () => {
  let gateway;
  before(async () => (gateway = await startGateway()));
  after(() => gateway.stop());

  test("a run that failed is told once, in the class of its kind", async () => {
    const catalogue = await (await globalThis.fetch(`${gateway.url}/v1/errors`)).json();
    assert.ok(catalogue.length > 30);
    for (const { code, status: usual } of catalogue) {
      const { sent, fetch } = counting();
      const client = clientFor(gateway.url, { fetch });
      const [kind, status] = [code, STATUSES[code] ?? usual];
      const Class = CLASSES[status] ?? OpenAI.APIError;
      for (const ask of [
        () => client.chat.completions.create(chat(`/fault ${kind}`)),
        () => client.responses.create({ input: `/fault ${kind}` }),
      ]) {
        const error = await ask().then(assert.fail, (error) => error);
        assert.ok(error instanceof Class, `${kind}: ${error}`);
        assert.deepEqual(
          [error.status, error.error.kind, error.error.severity],
          [status, code, "FATAL"],
        );
        assert.ok(error.requestID);
      }
      assert.equal(sent.length, 2, kind);
      for (const ask of [
        client.chat.completions.create(chat(`/fault ${kind}`, { stream: true })),
        client.responses.create({ input: `/fault ${kind}`, stream: true }),
      ]) {
        const { error } = await drain(await ask);
        assert.ok(error instanceof OpenAI.APIError, `${kind}: ${error}`);
        assert.equal(error.error.kind, code);
      }
      assert.equal(sent.length, 4, kind);
    }
  });

  test("wrong input and another body under a key are told once", async () => {
    const { sent, fetch } = counting();
    const client = clientFor(gateway.url, { fetch });
    const before = (await runsOf(gateway.url)).length;
    await assert.rejects(client.chat.completions.create(chat("x", { model: "gpt-9" })), {
      status: 404,
      code: "model_not_found",
      param: "model",
    });
    await assert.rejects(client.chat.completions.create(chat("x", { n: 2 })), {
      status: 400,
      param: "n",
    });
    await assert.rejects(client.chat.completions.create(chat("x", { logprobs: true })), {
      status: 400,
      param: "logprobs",
    });
    await assert.rejects(
      client.responses.create({ input: "x", text: { format: { type: "json_object" } } }),
      { status: 400, param: "text.format" },
    );
    assert.equal((await runsOf(gateway.url)).length, before);
    const headers = { "Idempotency-Key": randomUUID() };
    await client.chat.completions.create(chat("/echo a"), { headers });
    await assert.rejects(
      client.chat.completions.create(chat("/echo b"), { headers }),
      OpenAI.ConflictError,
    );
    assert.equal(sent.length, 6);
  });

  test(
    "a wrong key is an authentication error, and a limit is waited for",
    { timeout: 60_000 },
    async (t) => {
      const hash = createHash("sha256").update("sk-right").digest("hex");
      const tenant = `[[tenants]]\nname = "acme"\nkeys = ["sha256:${hash}"]\n`;
      const limited = await startGateway({
        config: `[limits]\nruns_per_tenant = 1\n\n${tenant}`,
      });
      t.after(() => limited.stop());
      const { sent, fetch } = counting();
      await assert.rejects(
        clientFor(limited.url, { apiKey: "sk-wrong", fetch }).models.list(),
        OpenAI.AuthenticationError,
      );
      assert.equal(sent.length, 1);
      const client = clientFor(limited.url, { apiKey: "sk-right", fetch });
      const hanging = await client.responses.create({ input: "/hang", background: true });
      const refused = await client.responses
        .create({ input: "/echo hi" }, { maxRetries: 1 })
        .then(assert.fail, (error) => error);
      assert.ok(refused instanceof OpenAI.RateLimitError);
      assert.equal(sent.length, 4, "what passes is tried again");
      await client.responses.cancel(hanging.id);
      assert.equal((await client.responses.create({ input: "/echo hi" })).output_text, "hi");
    },
  );

  test(
    "what was lost before its head is sent again by the SDK and bills no second run",
    { timeout: 60_000 },
    async (t) => {
      for (const ask of [
        (client) => client.chat.completions.create(chat("/tokens 40 --delay 5ms")),
        (client) => client.responses.create({ input: "/tokens 41 --delay 5ms" }),
      ]) {
        // The first answer never comes; its connection breaks.
        const lossy = await startCutter(gateway.url, () => undefined);
        t.after(lossy.stop);
        let tries = 0;
        const broken = async (input, init) => {
          if (tries++ > 0) return fetch(input, init);
          const controller = new AbortController();
          const asked = fetch(input, { ...init, signal: controller.signal });
          asked.catch(() => {});
          await new Promise((resolve) => setTimeout(resolve, 100));
          controller.abort();
          throw new TypeError("terminated");
        };
        const before = (await runsOf(gateway.url)).length;
        await ask(clientFor(gateway.url, { fetch: broken }));
        assert.equal(tries, 2);
        assert.equal((await runsOf(gateway.url)).length, before + 1);
      }
    },
  );

  test(
    "a cut is never an answer, and a response is read on after it",
    { timeout: 60_000 },
    async (t) => {
      const client = clientFor(gateway.url);
      const whole = (
        await drain(await client.responses.create({ input: "/tokens 12", stream: true }))
      ).events;
      for (const cut of cutsOf(whole.length)) {
        const cutter = await startCutter(gateway.url, () => cut);
        t.after(cutter.stop);
        const cutting = clientFor(cutter.url, { maxRetries: 0 });
        const { events, error } = await drain(
          await cutting.responses.create({ input: "/tokens 12", stream: true }),
        );
        assert.ok(error, `cut after ${cut}`);
        assert.equal(events.length, cut);
        const { id } = events[0].response;
        const rest = await drain(
          await client.responses.retrieve(id, {
            stream: true,
            starting_after: events.at(-1).sequence_number,
          }),
        );
        assert.equal(rest.error, undefined);
        assert.deepEqual(
          [...events, ...rest.events].map((event) => event.type),
          whole.map((event) => event.type),
        );
        assert.equal(deltasOf([...events, ...rest.events]), deltasOf(whole));
      }
    },
  );

  test("a chat that is cut is an error, up to its very end", { timeout: 60_000 }, async (t) => {
    const whole = (
      await drain(
        await clientFor(gateway.url).chat.completions.create(chat("/tokens 12", { stream: true })),
      )
    ).events;
    // The SDK does not count the last frame, `[DONE]`, as an event.
    for (const cut of cutsOf(whole.length + 1)) {
      const cutter = await startCutter(gateway.url, () => cut);
      t.after(cutter.stop);
      const { events, error } = await drain(
        await clientFor(cutter.url).chat.completions.create(chat("/tokens 12", { stream: true })),
      );
      assert.ok(error, `cut after ${cut}`);
      assert.equal(events.length, cut);
    }
  });
});
