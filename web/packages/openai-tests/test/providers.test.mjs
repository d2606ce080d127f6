// Libraries over OpenAI's API: LangChain's and the AI SDK's providers against the real binary, with
// counted runs. Part of the soak.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { createOpenAI } from "@ai-sdk/openai";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

import { startGateway } from "../../../testing/gateway.mjs";
import { startCutter } from "../../ag-ui-tests/support/cutter.mjs";
import { providers, startProvider } from "../../ag-ui-tests/support/providers.mjs";
import { resumableFetch } from "../node_modules/.build/openai.mjs";
import { runsOf } from "../support/openai.mjs";

const quick = { backoff: { first: 1, max: 1, jitter: false } };
const TEXT = Array.from({ length: 12 }, (_, n) => `tok${n + 1}`).join(" ");

describe(
  "soak: providers",
  { skip: !process.env["CAPSTAN_SOAK"] && "soak: needs CAPSTAN_SOAK", timeout: 120_000 },
  () => {
    let gateway;
    before(async () => (gateway = await startGateway()));
    after(() => gateway.stop());

    /** Does the work, and returns how many runs it took. */
    const counted = async (work) => {
      const before = (await runsOf(gateway.url)).length;
      const done = await work();
      return [done, (await runsOf(gateway.url)).length - before];
    };
    const openai = (url, options = {}) =>
      createOpenAI({ baseURL: `${url}/v1`, apiKey: "sk-local", ...options });

    for (const api of ["responses", "chat"]) {
      test(`the AI SDK, ${api}: whole, streamed, healed, failed`, async (t) => {
        const model = openai(gateway.url)[api]("demo");
        assert.deepEqual(
          await counted(async () =>
            (await generateText({ model, prompt: "/tokens 12" })).text.trim(),
          ),
          [TEXT, 1],
        );
        assert.deepEqual(
          await counted(async () =>
            (await streamText({ model, prompt: "/tokens 12" }).text).trim(),
          ),
          [TEXT, 1],
        );
        const cutter = await startCutter(gateway.url, (n) => [5, 6][n]);
        t.after(cutter.stop);
        const healing = openai(cutter.url, { fetch: resumableFetch(quick) })[api]("demo");
        assert.deepEqual(
          await counted(async () =>
            (await streamText({ model: healing, prompt: "/tokens 12", maxRetries: 0 }).text).trim(),
          ),
          [TEXT, 1],
        );
        // It retries any 5xx whatever the headers, so faults that a retry cannot fix have none.
        for (const kind of ["content_refused", "context_length_exceeded", "tenant_required"]) {
          const [error, runs] = await counted(() =>
            generateText({ model, prompt: `/fault ${kind}` }).then(assert.fail, (error) => error),
          );
          assert.deepEqual([error.isRetryable, runs], [false, 1], kind);
        }
        const { fullStream } = streamText({
          model,
          prompt: "/fault upstream_auth",
          onError: () => {},
        });
        const parts = [];
        for await (const part of fullStream) parts.push(part.type);
        assert.ok(parts.includes("error"), String(parts));
      });

      test(`the AI SDK, ${api}: a tool is called and its result goes back`, async (t) => {
        const { calls, answer, seen, config } = providers.openai;
        const provider = await startProvider((nth) => (nth === 0 ? calls : answer("It is sunny.")));
        t.after(provider.stop);
        const behind = await startGateway({
          config: `[[agents]]\nname = "model"\n${config(provider.url)}`,
        });
        t.after(() => behind.stop());
        const weather = tool({
          description: "How it is",
          inputSchema: z.object({ city: z.string() }),
          execute: async () => "21 °C",
        });
        const model = openai(behind.url)[api]("model");
        const { text, steps } = await generateText({
          model,
          system: "Be brief.",
          prompt: "How is the weather?",
          tools: { weather },
          stopWhen: isStepCount(3),
        });
        assert.equal(text, "It is sunny.");
        // In Responses the second request only refers to the first one's messages.
        assert.deepEqual(seen(provider.bodies[1]), {
          tools: ["weather"],
          context: "Be brief.",
          result: "21 °C",
          called: true,
        });
        assert.deepEqual([steps.length, (await runsOf(behind.url)).length], [2, 2]);
      });
    }

    for (const useResponsesApi of [true, false]) {
      const api = useResponsesApi ? "responses" : "chat";
      test(`LangChain, ${api}: whole, streamed, failed`, async () => {
        const model = new ChatOpenAI({
          model: "demo",
          apiKey: "sk-local",
          useResponsesApi,
          configuration: { baseURL: `${gateway.url}/v1` },
        });
        assert.deepEqual(
          await counted(async () => (await model.invoke("/tokens 12")).text.trim()),
          [TEXT, 1],
        );
        const [said, runs] = await counted(async () => {
          let said = "";
          for await (const chunk of await model.stream("/tokens 12")) said += chunk.text;
          return said.trim();
        });
        assert.deepEqual([said, runs], [TEXT, 1]);
        const [error, failed] = await counted(() =>
          model.invoke("/fault content_refused").then(assert.fail, (error) => error),
        );
        assert.deepEqual([error.status, failed], [400, 1]);
      });
    }
  },
);
