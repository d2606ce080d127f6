// AG-UI's own clients, both published lines, against the real gateway through `capstan chaos`, with
// resumableFetch.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { HttpAgent as HttpAgent1 } from "@ag-ui/client";
import { HttpAgent as HttpAgent0 } from "@ag-ui/client-0";
import { newId, type Notice, parseAGUIError, resumableFetch } from "capstan";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";

import { type Gateway, startChaos, startGateway } from "../../testing/gateway.mjs";

let gateway: Gateway;

beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(() => gateway?.stop());
afterEach(() => void vi.restoreAllMocks());

const lines = [
  ["1.0.0", HttpAgent1],
  ["0.0.59", HttpAgent0],
] as const;

test.for(lines)(
  "HttpAgent %s gets the exact text through cuts at odd places",
  async ([, HttpAgent]) => {
    const complaints = [vi.spyOn(console, "error"), vi.spyOn(console, "warn")];
    const chaos = await startChaos(gateway.url, [
      "--seed",
      "4",
      "--faults",
      "6",
      "--cut",
      "--cut-after",
      "200-4000b",
      "--cut-with",
      "any",
    ]);
    const notices: string[] = [];
    const fetch = resumableFetch({
      maxRetries: 10,
      backoff: { first: 10, max: 20 },
      onNotice: ({ type }) => notices.push(type),
    });
    const agent = new HttpAgent({ url: `${chaos.url}/v1/ag-ui`, threadId: newId(), fetch });
    agent.addMessage({ id: newId(), role: "user", content: "/tokens 120 --delay 2ms" });
    const { newMessages } = await agent.runAgent({ runId: newId() });
    const text = Array.from({ length: 120 }, (_, n) => `tok${n + 1} `).join("");
    expect(
      newMessages
        .map(({ content }) => content)
        .join("")
        .trim(),
    ).toBe(text.trim());
    expect(notices.filter((type) => type === "resumed").length).toBeGreaterThan(3);
    for (const complaint of complaints) expect(complaint.mock.calls).toEqual([]);
    await chaos.stop();
  },
);

test.for(lines)("HttpAgent %s hands over a failure that can be read", async ([, HttpAgent]) => {
  vi.spyOn(console, "error").mockImplementation(() => {});
  const agent = new HttpAgent({
    url: `${gateway.url}/v1/ag-ui`,
    threadId: newId(),
    fetch: resumableFetch(),
  });
  agent.addMessage({ id: newId(), role: "user", content: "/fault rate_limited --retry-after 7" });
  let seen: unknown;
  agent.subscribe({ onRunErrorEvent: ({ event }) => void (seen = event) });
  await agent.runAgent({ runId: newId() }).catch(() => {});
  expect(parseAGUIError(seen)).toMatchObject({
    code: "RATE_LIMITED",
    http_status: 429,
    retry_after: 7,
    kind: "rate_limit_exceeded",
  });
});

test.for(lines)(
  "HttpAgent %s does not notice that the server is replaced in mid-run",
  async ([, HttpAgent]) => {
    const complaints = [vi.spyOn(console, "error"), vi.spyOn(console, "warn")];
    const folder = mkdtempSync(join(tmpdir(), "capstan-deploy-"));
    const settings = { journal: `disk:${folder}`, config: "[timeouts]\ndrain = 0.1\n" };
    const old = await startGateway(settings);
    const notices: Notice[] = [];
    const fetch = resumableFetch({
      maxRetries: 20,
      backoff: { first: 100, max: 200 },
      onNotice: (notice) => notices.push(notice),
    });
    const agent = new HttpAgent({ url: old.endpoint, threadId: newId(), fetch });
    agent.addMessage({ id: newId(), role: "user", content: "/tokens 40 --delay 20ms" });
    const seen: string[] = [];
    let next: Promise<Gateway> | undefined;
    agent.subscribe({
      onEvent: ({ event }) => {
        seen.push(event.type);
        if (seen.length !== 10) return;
        old.child.kill("SIGTERM");
        next = old.ended.then(() => startGateway({ ...settings, listen: new URL(old.url).host }));
      },
    });
    const { newMessages } = await agent.runAgent({ runId: newId() });
    expect(newMessages.map(({ content }) => content)).toEqual([
      Array.from({ length: 40 }, (_, n) => `tok${n + 1} `).join(""),
    ]);
    expect(seen.filter((type) => type.startsWith("RUN_"))).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
    expect(notices).toContainEqual(
      expect.objectContaining({
        type: "retrying",
        because: expect.stringContaining("run_interrupted"),
      }),
    );
    for (const complaint of complaints) expect(complaint.mock.calls).toEqual([]);
    await (await next)?.stop();
    await old.stop();
    rmSync(folder, { recursive: true });
  },
);
