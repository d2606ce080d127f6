// The page's questions and toasts: questions are forms, and toasts do not cover the header.
import { expect, test } from "vitest";

import { ended, say, textOf } from "./browser.js";
import { setStage } from "./stage.js";

const stage = setStage();

test.each([
  [320, 640],
  [390, 844],
  [1280, 800],
])("a toast leaves the header of a screen of %i × %i free", async (width, height) => {
  const page = await stage.start({
    viewport: { width, height },
    isMobile: width < 800,
    hasTouch: width < 800,
  });
  await say(page, "/fault content_refused");
  const toast = page.locator("[data-sonner-toast][data-visible=true]");
  await toast.waitFor();
  const header = await page.locator(".header").boundingBox();
  // The toast slides in; only its final position counts.
  await expect
    .poll(async () => (await toast.boundingBox())?.y ?? 0)
    .toBeGreaterThanOrEqual((header?.y ?? 0) + (header?.height ?? 0));
  await page.getByRole("button", { name: "New conversation" }).click({ timeout: 2_000 });
  await page.getByText("Cut the line. The answer heals.").waitFor();
});

test.each(["cap", "ag-ui", "openai", "ai-sdk"])(
  "a question is a form, and its answer goes on in the same conversation (%s)",
  async (face) => {
    const page = await stage.start();
    await page.getByLabel("Face").selectOption(face);
    await say(page, "/ask Paint it blue?");
    await ended(page, "closed");
    const form = page.getByRole("form", { name: "Question" });
    await form.getByText("Paint it blue?").waitFor();
    await form.getByLabel("Go on").check();
    await form.getByLabel("Note").fill("navy");
    await form.getByRole("button", { name: "Answer" }).click();
    await expect
      .poll(() => textOf(page))
      .toBe('You answered {"approved":true,"note":"navy"}, so I go on.');
    expect(await form.getByRole("button", { name: "Answer" }).isDisabled()).toBe(true);
  },
);
