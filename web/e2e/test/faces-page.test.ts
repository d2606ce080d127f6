// The page in OpenAI's and in the AI SDK's protocol: the same answers as in CAP, through cuts and
// reloads, in one conversation.
import type { Page } from "playwright-core";
import { expect, test } from "vitest";

import { count, ended, lastTurn, say, textOf } from "./browser.js";
import { setStage } from "./stage.js";

const stage = setStage();
const tokens = (n: number) => Array.from({ length: n }, (_, at) => `tok${at + 1}`).join(" ");

async function start(face: string): Promise<Page> {
  const page = await stage.start();
  await page.getByLabel("Face").selectOption(face);
  return page;
}

/** Waits for a part of an answer. */
const begun = (page: Page, length: number) =>
  page.waitForFunction(
    (length) =>
      (document.querySelector(".turn:last-of-type .answer")?.textContent ?? "").length > length,
    length,
  );

test.each(["openai", "ai-sdk"])("%s: cuts heal", async (face) => {
  const page = await start(face);
  await page.getByLabel("Cut by itself").selectOption("10");
  await say(page, "/tokens 30");
  await ended(page, "closed");
  expect(await textOf(page)).toBe(tokens(30));
  expect(await count(page, "cut")).toBeGreaterThan(1);
  expect(await count(page, "resume")).toBeGreaterThan(1);
});

test.each(["cap", "ag-ui", "openai", "ai-sdk"])(
  "%s: a reload in the middle of an answer finds all of it",
  async (face) => {
    const page = await start(face);
    await say(page, "/echo before");
    await ended(page, "closed");
    await say(page, "/tokens 150 --delay 5ms");
    await begun(page, 200);
    await page.reload();
    await begun(page, 200);
    await ended(page, "closed");
    expect(await textOf(page)).toBe(tokens(150));
    expect(await page.locator(".turn").count()).toBe(2);
    expect(await page.locator(".turn").first().locator(".prose").innerText()).toBe("before");
    expect(await page.getByLabel("Face").inputValue()).toBe(face);
  },
);

test.each(["openai", "ai-sdk"])("%s: events are shown as in CAP", async (face) => {
  const shown = async (page: Page) => {
    await say(page, "/events");
    await ended(page, "closed");
    return lastTurn(page)
      .locator(".answer > *:not(footer)")
      .evaluateAll((all) => all.map((one) => one.className).sort());
  };
  const page = await start("cap");
  const expected = new Set(await shown(page));
  await page.getByLabel("Face").selectOption(face);
  expect(new Set(await shown(page))).toEqual(expected);
});

test.each(["openai", "ai-sdk"])(
  "%s: a failure is told and a run stopped, in a conversation that other faces know",
  async (face) => {
    const page = await start(face);
    await say(page, "/fault content_refused");
    await ended(page, "failed");
    expect(await lastTurn(page).getByTestId("status").innerText()).toContain("content_refused");
    await say(page, "/hang");
    await page.getByRole("button", { name: "Stop" }).click();
    await ended(page, "closed");
    expect(await lastTurn(page).getByTestId("status").innerText()).toContain("cancelled");
    await say(page, "What is a capstan?");
    await ended(page, "closed");
    await page.getByLabel("Face").selectOption("cap");
    await say(page, "And a windlass?");
    await ended(page, "closed");
    expect(await textOf(page)).toContain("We have had one turn before this one");
  },
);
