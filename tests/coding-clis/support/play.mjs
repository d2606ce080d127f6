// Runs a turn of a CLI, with or without Capstan between it and the model, and counts its calls.
import assert from "node:assert/strict";

import { room, turn } from "./cli.mjs";
import { places, placesOfText, startCutter } from "./cutter.mjs";
import { startCapstan, startPair } from "./gateway.mjs";
import { ANSWER, CONTENT, startModel } from "./provider.mjs";

/**
 * @param {import("node:test").TestContext} t
 * @param {{ cli: "claude" | "codex", faults?: string[], capstan?: false | "pair" | Function,
 * cutter?: string, answer?: 1 | 2, during?: Function, slow?: boolean, by?: "capstan",
 * tool?: "patch", hasSocket?: boolean, again?: boolean }} options `cutter` names the place in which
 * the CLI's connection breaks, in this `answer` of the model; `again` resumes the session for a
 * second turn
 */
export async function play(t, options) {
  const { cli, faults, capstan, cutter, answer = 1, during, slow, by, tool, hasSocket } = options;
  const here = room();
  t.after(here.clear);
  const model = await startModel({ cli, tool, file: here.file, faults, slow });
  t.after(model.stop);
  const usual = capstan === "pair" ? startPair : startCapstan;
  const start = typeof capstan === "function" ? capstan : usual;
  const gateway = capstan === false ? undefined : await start({ cli, model: model.url });
  if (gateway) t.after(gateway.stop);
  let url = gateway?.url ?? model.url;
  const cut = answer === 1 ? places[cli][cutter] : placesOfText[cutter];
  const proxy = cutter || hasSocket ? await startCutter(url, cut ?? ["", -1], answer) : undefined;
  if (proxy) {
    t.after(proxy.stop);
    ({ url } = proxy);
  }
  const played = { cli, url, room: here, by, hasSocket };
  let [result] = await Promise.all([turn(played), during?.(model, gateway)]);
  if (options.again) result = await turn({ ...played, resumes: true });
  const calls = await model.calls();
  const complaints = calls.map((call) => call.complaint).filter(Boolean);
  assert.deepEqual(complaints, [], "thinking came back unchanged");
  if (cutter) assert.ok(proxy.wasCut(), "the connection was cut");
  if (hasSocket) assert.ok(proxy.upgrades() > 0, "there was a WebSocket");
  const bodies = calls.map((call) => call.body);
  return { ...result, calls: calls.length, bodies, written: here.written() };
}

/** Waits until the model has written a part of an answer. */
async function half(model) {
  while (!(await model.calls()).some((call) => call.tokens > 6))
    await new Promise((resolve) => setTimeout(resolve, 10));
}

/** Asserts that the turn ended as if nothing had happened, after so many calls. */
export function holds(result, calls) {
  assert.deepEqual(
    { code: result.code, answer: result.answer, written: result.written, calls: result.calls },
    { code: 0, answer: ANSWER, written: CONTENT, calls },
    result.stderr,
  );
}

/** The gateway dies in the middle of an answer. */
export async function killed(model, gateway) {
  await half(model);
  await gateway.kill();
}
