// An answer with reasoning, by an agent that speaks Responses: the stream helpers of published
// clients expect one id in all events of an item.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { createOpenAI } from "@ai-sdk/openai";
import { streamText } from "ai";

import { startFakeProvider, startGateway } from "../../../testing/gateway.mjs";
import { clientFor } from "../support/openai.mjs";

const script = `[answer]
reasoning = "A short think."
signed = true
text = "It is sunny."
`;

describe("reasoning", { timeout: 60_000 }, () => {
  let [folder, provider, gateway] = [];
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "capstan-reasoning-"));
    writeFileSync(join(folder, "script.toml"), script);
    provider = await startFakeProvider(["--script", join(folder, "script.toml")]);
    const config = `[[agents]]
name = "thinker"
kind = "openai"
api = "responses"
model = "m"
url = "${provider.url}/v1"
`;
    gateway = await startGateway({ config, env: { OPENAI_API_KEY: "sk-x" } });
  });
  after(async () => {
    await gateway.stop();
    await provider.stop();
    rmSync(folder, { recursive: true });
  });

  test("OpenAI's stream helper reads it", async () => {
    const client = clientFor(gateway.url);
    const stream = client.responses.stream({ model: "thinker", input: "How is the weather?" });
    const response = await stream.finalResponse();
    assert.deepEqual(
      response.output.map((item) => item.type),
      ["reasoning", "message"],
    );
    assert.equal(response.output[0].summary[0].text, "A short think.");
    assert.equal(response.output_text, "It is sunny.");
  });

  test("the AI SDK reads it", async () => {
    const openai = createOpenAI({ baseURL: `${gateway.url}/v1`, apiKey: "sk-local" });
    const errors = [];
    const result = streamText({
      model: openai.responses("thinker"),
      prompt: "How is the weather?",
      onError: ({ error }) => errors.push(error),
    });
    assert.equal(await result.text, "It is sunny.");
    assert.equal(await result.reasoningText, "A short think.");
    assert.deepEqual(errors, []);
  });
});
