// Claude Code in front of models whose second answer differs, that call several tools at once, hide
// their thoughts, or fall silent; and its subagents. The model counts its calls.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";

import { startGateway } from "../../web/testing/gateway.mjs";
import { clis, room, turn } from "./support/cli.mjs";
import { startCutter } from "./support/cutter.mjs";
import { results, startMessagesModel } from "./support/messages-model.mjs";

const config = (url, timeouts) => `[timeouts]
backoff = 0.01
[[agents]]
name = "${clis.claude.model}"
kind = "anthropic"
model = "m"
url = "${url}"
${timeouts ? `timeouts = ${timeouts}` : ""}
`;

const thought = { type: "thinking", thinking: "A short file will do." };
const text = (text) => ({ type: "text", text });
const write = (file, content) => ({
  type: "tool_use",
  name: "Write",
  input: { file_path: file, content },
});
const done = { blocks: [text("Done.")] };

/** Plays a turn; `cut` is where the CLI's own connection ends, in this answer of the model. */
async function play(t, answer, { cut, nth = 1, timeouts } = {}) {
  const here = room();
  t.after(here.clear);
  const model = await startMessagesModel((body, number) => answer(body, number, here));
  t.after(model.stop);
  const env = { ANTHROPIC_API_KEY: "sk-x" };
  const gateway = await startGateway({ config: config(model.url, timeouts), env });
  t.after(gateway.stop);
  const proxy = cut && (await startCutter(gateway.url, cut, nth));
  if (proxy) t.after(proxy.stop);
  const result = await turn({ cli: "claude", url: proxy?.url ?? gateway.url, room: here });
  assert.equal(result.code, 0, result.stderr);
  if (cut) assert.ok(proxy.wasCut(), "the connection was cut");
  return { ...result, calls: model.requests.length, requests: model.requests, here };
}

describe("Claude Code and what models answer", { concurrency: 2, timeout: 300_000 }, () => {
  const places = [
    ["thinking_delta", 2],
    ["text_delta", 2],
    ["input_json_delta", 3],
  ];
  for (const place of places) {
    test(`the provider breaks off behind ${place[0]}, and answers differently then`, async (t) => {
      const answer = (body, number, { file }) => {
        if (results(body) > 0) return done;
        if (number > 1)
          return { blocks: [text("Sure, right away, here it is."), write(file, "second\n")] };
        const blocks = [thought, text("I write the file that you want."), write(file, "first\n")];
        return { blocks, cut: place };
      };
      const told = await play(t, answer);
      assert.equal(told.here.written(), "second\n");
      assert.equal(told.calls, 3);
    });
  }

  test("the CLI's connection ends while the second of three calls begins", async (t) => {
    const answer = (body, _, { file }) => {
      const beside = (name) => join(dirname(file), name);
      if (results(body) > 0) return done;
      const calls = [write(beside("a.txt"), "a\n"), write(beside("b.txt"), "b\n")];
      return { blocks: [thought, text("Three."), ...calls, write(file, "c\n")], interval: 60 };
    };
    const told = await play(t, answer, { cut: ["content_block_start", 4] });
    for (const name of ["a.txt", "b.txt", "note.txt"])
      assert.ok(existsSync(join(dirname(told.here.file), name)), name);
    assert.equal(told.calls, 2);
  });

  test("a subagent's connection ends in its report", async (t) => {
    const isSub = (body) => !JSON.stringify(body.messages).includes("Write a greeting");
    const answer = (body, _, { file }) => {
      if (isSub(body))
        return { blocks: [text("The report begins."), text("It goes on for a while.")] };
      if (results(body) > 1) return done;
      if (results(body) > 0) return { blocks: [write(file, "x\n")] };
      const input = { description: "help", prompt: "Find it", subagent_type: "general-purpose" };
      const here = { ...input, run_in_background: false };
      const call = { type: "tool_use", name: "Agent", input: here };
      return { blocks: [call] };
    };
    const told = await play(t, answer, { cut: ["text_delta", 5], nth: 2 });
    const report = JSON.stringify(told.requests.at(-1).body.messages);
    assert.ok(report.includes("It goes on for a while."), report.slice(-900));
    assert.equal(told.calls, 4, "two of the agent's, one of the subagent's, the end");
  });

  test("a hidden thought takes longer than every other silence may", async (t) => {
    const answer = (body, _, { file }) => {
      if (results(body) > 0) return done;
      const hidden = { type: "thinking", thinking: "" };
      return { blocks: [hidden, write(file, "x\n")], hidden: 30, interval: 100 };
    };
    const timeouts = "{ first_token = 1, idle = 1, thinking = 1 }";
    const told = await play(t, answer, { timeouts });
    assert.deepEqual([told.here.written(), told.calls], ["x\n", 2]);
  });

  test("the provider falls silent in a text", async (t) => {
    const answer = (body, number, { file }) => {
      if (results(body) > 0) return done;
      const blocks = [text("I write the file that you want."), write(file, "x\n")];
      return number === 1 ? { blocks, silent: ["text_delta", 2] } : { blocks };
    };
    const told = await play(t, answer, { timeouts: "{ idle = 1 }" });
    assert.deepEqual([told.here.written(), told.calls], ["x\n", 3]);
  });
});
