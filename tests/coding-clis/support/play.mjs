// A turn of a CLI behind whatever stands between it and the model, and what the turn cost.
import assert from "node:assert/strict";

import { room, turn } from "./cli.mjs";
import { places, startCutter } from "./cutter.mjs";
import { startCapstan, startPair } from "./gateway.mjs";
import { ANSWER, CONTENT, startModel } from "./provider.mjs";

/**
 * @param {import("node:test").TestContext} t
 * @param {{ cli: "claude" | "codex", faults?: string[], capstan?: false | "pair",
 * cutter?: string, during?: Function, slow?: boolean, by?: "capstan" }} options
 */
export async function play(t, { cli, faults, capstan, cutter, during, slow, by }) {
  const here = room();
  t.after(here.clear);
  const model = await startModel({ cli, file: here.file, faults, slow });
  t.after(model.stop);
  const start = capstan === "pair" ? startPair : startCapstan;
  const gateway = capstan === false ? undefined : await start({ cli, model: model.url });
  if (gateway) t.after(gateway.stop);
  let url = gateway?.url ?? model.url;
  if (cutter) {
    const proxy = await startCutter(url, places[cli][cutter]);
    t.after(proxy.stop);
    ({ url } = proxy);
  }
  const [told] = await Promise.all([turn({ cli, url, room: here, by }), during?.(model, gateway)]);
  const calls = await model.calls();
  const complaints = calls.map((call) => call.complaint).filter(Boolean);
  assert.deepEqual(complaints, [], "thinking came back as it was");
  return { ...told, calls: calls.length, written: here.written() };
}

/** When the model has said something, but not all. */
async function half(model) {
  while (!(await model.calls()).some((call) => call.tokens > 6))
    await new Promise((resolve) => setTimeout(resolve, 10));
}

/** It ended as if nothing had happened. */
export function holds(told, calls) {
  assert.deepEqual(
    { code: told.code, answer: told.answer, written: told.written, calls: told.calls },
    { code: 0, answer: ANSWER, written: CONTENT, calls },
    told.stderr,
  );
}

/** The gateway dies in the middle of an answer. */
export async function killed(model, gateway) {
  await half(model);
  await gateway.kill();
}
