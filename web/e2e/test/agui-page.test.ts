// The page in the AG-UI face: it resumes, sends the whole conversation, and a retry continues the
// same run.
import type { Page } from "playwright-core";
import { expect, test } from "vitest";

import { count, ended, lastTurn, say, textOf } from "./browser.js";
import { setStage } from "./stage.js";

const stage = setStage();

interface Sent {
  cursor: string | undefined;
  input: {
    runId: string;
    threadId: string;
    messages: { id: string; role: string; content: string }[];
  };
}

/** A page that speaks AG-UI, and the requests that it sends. */
async function start(
  size: Parameters<typeof stage.start>[0] = {},
): Promise<{ page: Page; sent: Sent[] }> {
  const page = await stage.start(size);
  const sent: Sent[] = [];
  page.on("request", (request) => {
    if (request.url().endsWith("/ag-ui"))
      sent.push({ cursor: request.headers()["last-event-id"], input: request.postDataJSON() });
  });
  await page.getByLabel("Face").selectOption("ag-ui");
  return { page, sent };
}

test("cuts heal", async () => {
  const { page } = await start();
  await page.getByLabel("Cut by itself").selectOption("10");
  await say(page, "/tokens 30");
  await ended(page, "closed");
  expect(await textOf(page)).toBe(Array.from({ length: 30 }, (_, n) => `tok${n + 1}`).join(" "));
  expect(await count(page, "cut")).toBeGreaterThan(1);
});

test("an attempt that says something else takes back what it must", async () => {
  const { page } = await start();
  await say(page, "/diverge");
  await ended(page, "closed");
  expect(await textOf(page)).toMatch(
    /^The answer, I am quite sure, depends on the question;.*before I spoke\.$/,
  );
});

test("a stopped run is shown as stopped", async () => {
  const { page } = await start();
  await say(page, "/hang");
  await page.getByRole("button", { name: "Stop" }).click();
  await ended(page, "closed");
  expect(await lastTurn(page).getByTestId("status").innerText()).toContain("cancelled");
});

test("each question brings along all that succeeded, in any face", async () => {
  const { page, sent } = await start();
  await page.getByLabel("Face").selectOption("cap");
  await say(page, "What is a capstan?");
  await ended(page, "closed");
  const first = await stage.whole("What is a capstan?");
  await page.getByLabel("Face").selectOption("ag-ui");
  await say(page, "/fault content_refused");
  await ended(page, "failed");
  await say(page, "And a windlass?");
  await ended(page, "closed");
  expect(await textOf(page)).toContain("We have had one turn before this one");
  await say(page, "And a winch?");
  await ended(page, "closed");
  expect(await textOf(page)).toContain("We have had 2 turns before this one");

  const messages = sent.map(({ input }) =>
    input.messages.map(({ role, content }) => `${role}: ${content.trim()}`),
  );
  expect(messages[1]).toEqual([
    "user: What is a capstan?",
    `assistant: ${first}`,
    "user: And a windlass?",
  ]);
  expect(messages[2]).toHaveLength(5);
  expect(messages[2]?.slice(0, 3)).toEqual(messages[1]);
  const ids = sent[2]?.input.messages.map(({ id }) => id) ?? [];
  expect(new Set(ids).size).toBe(ids.length);
  expect(
    sent[1]?.input.messages.map(({ id }) => id),
    "a message keeps its id",
  ).toEqual(ids.slice(0, 3));
  expect(new Set(sent.map(({ input }) => input.threadId)).size).toBe(1);

  // The other face gets the messages of this one.
  await page.getByLabel("Face").selectOption("cap");
  await say(page, "And a crane?");
  await ended(page, "closed");
  expect(await textOf(page)).toContain("We have had 3 turns before this one");
});

// On a phone, where a toast has the least space. The other face has the same test on a desktop.
test("a retry goes on with the same run where it stood", async () => {
  const { page, sent } = await start({
    viewport: { width: 360, height: 740 },
    isMobile: true,
    hasTouch: true,
  });
  await say(page, "/flaky 1 --wait 6");
  await ended(page, "failed");
  const half = await textOf(page);
  expect(half).not.toBe("");
  await page
    .locator("[data-sonner-toast]")
    .getByRole("button", { name: "Retry", exact: true })
    .tap({ timeout: 15_000 });
  await ended(page, "closed");
  expect(await textOf(page)).toBe(await stage.whole("/flaky 0"));
  expect(await page.locator(".turn").count()).toBe(1);
  expect(sent).toHaveLength(2);
  expect(sent[1]?.input).toEqual(sent[0]?.input);
  expect(sent[0]?.cursor).toBeUndefined();
  expect(sent[1]?.cursor).toMatch(/^[0-9a-f-]{36}:\d+\.\d+$/);
});

test("a failure that does not pass is asked anew, as another run", async () => {
  const { page, sent } = await start();
  await say(page, "/user-error");
  await ended(page, "closed");
  await lastTurn(page).getByRole("button", { name: "Try again" }).click();
  await expect.poll(() => sent.length).toBe(2);
  await ended(page, "closed");
  expect(sent[1]?.input.runId).not.toBe(sent[0]?.input.runId);
  expect(sent[1]?.cursor).toBeUndefined();
});
