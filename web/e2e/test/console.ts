// Helpers for tests of the console: example runs, and accessibility checks.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { newId, question, user } from "capstan";
import type { Page } from "playwright-core";
import { expect } from "vitest";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export interface Started {
  status: number;
  streamId: string;
  requestId: string;
  /** The whole body, after its end. */
  whole: Promise<string>;
}

/** Starts a run as a client does. The request id in the header is the one of a support ticket. */
export async function ask(
  url: string,
  message: string,
  { key = "", session = newId() } = {},
): Promise<Started> {
  const requestId = `ticket-${newId()}`;
  const headers = {
    "content-type": "application/json",
    "x-request-id": requestId,
    ...(key === "" ? {} : { authorization: `Bearer ${key}` }),
  };
  const response = await fetch(`${url}/v1/assist`, {
    method: "POST",
    headers,
    body: JSON.stringify(question(session, message, user("e2e"))),
  });
  const whole = response.text();
  // Callers that do not wait for the end must not get an unhandled rejection.
  whole.catch(() => {});
  return {
    status: response.status,
    streamId: response.headers.get("x-stream-id") ?? "",
    requestId,
    whole,
  };
}

interface Found {
  violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[];
}

/** axe finds no problem on the page, and the page does not scroll sideways. */
export async function expectFit(page: Page): Promise<void> {
  // The page's policy forbids scripts, but not in the test's own context.
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(AXE);
  // The rule that visible text is part of accessible names is off by default, because it is
  // experimental. Users of voice control need it.
  const found = await page.evaluate(() =>
    (window as unknown as { axe: { run: (options: object) => Promise<Found> } }).axe.run({
      resultTypes: ["violations"],
      rules: { "label-content-name-mismatch": { enabled: true } },
    }),
  );
  expect(
    found.violations
      .map(
        ({ id, nodes }) =>
          `${id}: ${nodes
            .map(
              ({ html, failureSummary }) =>
                `${html.slice(0, 160)} ${failureSummary?.slice(0, 300)}`,
            )
            .slice(0, 3)
            .join("\n")}`,
      )
      .join("\n"),
  ).toBe("");
  expect(
    await page.evaluate(() => document.documentElement.scrollWidth - innerWidth),
    "no scrolling sideways",
  ).toBeLessThanOrEqual(0);
}

export async function setTheme(page: Page, theme: "light" | "dark"): Promise<void> {
  if ((await page.evaluate(() => document.documentElement.dataset["theme"])) !== theme)
    await page
      .getByRole("button", { name: `${theme === "dark" ? "Dark" : "Light"} theme` })
      .click();
}
