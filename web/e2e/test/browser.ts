// Pages that record every error, and helpers for tests.
import {
  type Browser,
  type BrowserContextOptions,
  chromium,
  type Locator,
  type Page,
} from "playwright-core";
import { inject } from "vitest";

/** The browser that all files share. */
export function connect(): Promise<Browser> {
  return chromium.connect(inject("browser"));
}

export interface Visit {
  page: Page;
  /** Errors and warnings of the console, and exceptions. */
  complaints: string[];
}

export async function visit(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<Visit> {
  // Without animations, which would keep a processor busy while a page is open.
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    reducedMotion: "reduce",
    ...options,
  });
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on(
    "console",
    (message) =>
      ["error", "warning"].includes(message.type()) &&
      complaints.push(`${message.text()} (${message.location().url})`),
  );
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(url);
  return { page, complaints };
}

/** Types a message and sends it with the keyboard. */
export async function say(page: Page, message: string): Promise<void> {
  await page.getByRole("textbox", { name: "Message" }).fill(message);
  await page.keyboard.press("Enter");
}

export function lastTurn(page: Page): Locator {
  return page.locator(".turn").last();
}

/** Waits for the last answer to end in a state. */
export async function ended(page: Page, status: "closed" | "failed"): Promise<void> {
  await page.locator(`.turn:last-of-type[data-status="${status}"]`).waitFor({ timeout: 30_000 });
}

/** The text of the last answer. */
export async function textOf(page: Page): Promise<string> {
  const pieces = await lastTurn(page).locator(".answer > .prose").allInnerTexts();
  return pieces.join("").replace(/\s+/g, " ").trim();
}

/** A number of the timeline's legend. */
export async function count(page: Page, kind: string): Promise<number> {
  return Number(await page.locator(`[data-count="${kind}"] strong`).innerText());
}
