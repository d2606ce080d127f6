// AG-UI's own clients, both published lines, against the real gateway through a proxy that cuts: resumableFetch heals them.
import { HttpAgent as HttpAgent1 } from "@ag-ui/client";
import { HttpAgent as HttpAgent0 } from "@ag-ui/client-0";
import { newId, parseAGUIError, resumableFetch } from "capstan";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";

import { startCutter } from "./cutter.js";
import { type Gateway, startGateway } from "./gateway.js";

let gateway: Gateway;
let hasFace = false;

beforeAll(async () => {
  gateway = await startGateway();
  const probe = await fetch(`${gateway.url}/v1/ag-ui`, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
  hasFace = probe.status !== 404;
});
afterAll(() => gateway?.stop());
afterEach(() => void vi.restoreAllMocks());

const lines = [["1.0.0", HttpAgent1], ["0.0.59", HttpAgent0]] as const;

test.for(lines)("HttpAgent %s gets the exact text through cuts at odd places", async ([, HttpAgent], { skip }) => {
  if (!hasFace) return skip("this gateway does not serve the AG-UI face");
  const complaints = [vi.spyOn(console, "error"), vi.spyOn(console, "warn")];
  let budget = 700;
  // Each connection gets a little further than the headers, and breaks at another byte.
  const cutter = await startCutter(gateway.url, () => (budget += 911));
  const agent = new HttpAgent({ url: `${cutter.url}/v1/ag-ui`, threadId: newId(), fetch: resumableFetch({ maxRetries: 10, backoff: { first: 10, max: 20 } }) });
  agent.addMessage({ id: newId(), role: "user", content: "/tokens 120 --delay 2ms" });
  const { newMessages } = await agent.runAgent({ runId: newId() });
  const text = Array.from({ length: 120 }, (_, n) => `tok${n + 1} `).join("");
  expect(newMessages.map(({ content }) => content).join("").trim()).toBe(text.trim());
  expect(cutter.count()).toBeGreaterThan(3);
  for (const complaint of complaints) expect(complaint.mock.calls).toEqual([]);
  cutter.close();
});

test.for(lines)("HttpAgent %s hands over a failure that can be read", async ([, HttpAgent], { skip }) => {
  if (!hasFace) return skip("this gateway does not serve the AG-UI face");
  vi.spyOn(console, "error").mockImplementation(() => {});
  const agent = new HttpAgent({ url: `${gateway.url}/v1/ag-ui`, threadId: newId(), fetch: resumableFetch() });
  agent.addMessage({ id: newId(), role: "user", content: "/fault rate_limited --retry-after 7" });
  let seen: unknown;
  agent.subscribe({ onRunErrorEvent: ({ event }) => void (seen = event) });
  await agent.runAgent({ runId: newId() }).catch(() => {});
  expect(parseAGUIError(seen)).toMatchObject({ code: "RATE_LIMITED", http_status: 429, retry_after: 7, kind: "rate_limit_exceeded" });
});
