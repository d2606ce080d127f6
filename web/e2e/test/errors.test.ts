// Failures as a user sees them: each of the ten codes, error events, and text that looks like
// script.
import { readFileSync } from "node:fs";

import { AGUIErrorCode, ERROR_MESSAGES, ERROR_STATUS, ERROR_TITLES, faultOf } from "capstan";
import type { Page } from "playwright-core";
import { afterEach, beforeAll, expect, test } from "vitest";

import { ended, lastTurn, say, visit, type Visit } from "./browser.js";
import { setStage } from "./stage.js";

const stage = setStage();
let open: Visit;

beforeAll(async () => {
  open = await visit(stage.browser, stage.gateway.url);
  // The clock runs, and a test can advance it.
  await open.page.clock.install();
});
afterEach(() => expect(open.complaints, "the console has no errors").toEqual([]));

/** Codes whose faults are retried. The others are final. */
const WAITING: readonly string[] = [
  "RATE_LIMITED",
  "TIMEOUT",
  "UPSTREAM_ERROR",
  "SERVICE_UNAVAILABLE",
];

// RUN_ERROR, and the ERROR packet that it is made of.
for (const face of ["ag-ui", "cap"])
  for (const code of Object.values(AGUIErrorCode)) {
    test(`in ${face}, ${code} shows its toast`, async () => {
      const { page } = open;
      await page.getByLabel("Face").selectOption(face);
      const isWaiting = WAITING.includes(code);
      await say(page, `/fault ${code}${isWaiting ? " --retry-after 25" : ""}`);
      const toast = page.locator("[data-sonner-toast][data-visible=true]");
      await toast.getByText(ERROR_MESSAGES[code], { exact: true }).first().waitFor();
      expect(await toast.innerText()).toContain(faultOf(code)?.message);
      await lastTurn(page).getByText(ERROR_TITLES[code], { exact: true }).waitFor();
      expect(await toast.getAttribute("data-type")).toBe(
        ERROR_STATUS[code] >= 500 ? "error" : null,
      );
      expect(await toast.getByRole(ERROR_STATUS[code] >= 500 ? "alert" : "status").count()).toBe(1);
      if (isWaiting) {
        await toast.getByText(/Please retry in \d+ seconds\./).waitFor();
        expect(
          (await toast.innerText()).match(/retry in|\d+ s/gi),
          "the wait is said once",
        ).toHaveLength(2);
        const retry = toast.getByRole("button", { name: "Retry", exact: true });
        expect(await retry.getAttribute("aria-disabled")).toBe("true");
        await page.clock.fastForward(25_000);
        await expect.poll(() => retry.getAttribute("aria-disabled")).toBe("false");
      }
      expect(await toast.getByRole("timer").count()).toBe(0);
      await toast.getByRole("button", { name: "Close toast" }).click();
      await expect.poll(() => toast.count()).toBe(0);
    });
  }

test("any fault of the catalogue is two clicks away", async () => {
  const { page } = open;
  await page.getByLabel("Fail with").selectOption("content_refused");
  await page.getByRole("button", { name: "Fail", exact: true }).click();
  await page
    .locator("[data-sonner-toast]")
    .getByText("External service unavailable.", { exact: true })
    .waitFor();
  await lastTurn(page).getByText("The model declined", { exact: true }).waitFor();
  await page.getByRole("button", { name: "New conversation" }).click();
});

test("events are rendered: sources, progress, media, markdown, thoughts, tools", async () => {
  const { page } = open;
  await say(page, "/events");
  await ended(page, "closed");
  const turn = lastTurn(page);
  expect(await turn.getByRole("link", { name: "On capstans" }).getAttribute("href")).toBe(
    "https://example.org/harbour/capstans",
  );
  expect(await turn.getByRole("progressbar").count()).toBe(1);
  expect(
    await turn.getByRole("cell", { name: "take the hands" }).locator("strong").innerText(),
  ).toBe("take");
  await turn.getByText("Thought").click();
  await turn.getByText("The user wants to see everything").waitFor();
  expect(
    await turn.locator('[data-domain="tool"]').getByRole("button", { name: "Try again" }).count(),
  ).toBe(1);
  // No other server was contacted.
  expect(await turn.locator("img").count()).toBe(0);
});

/** An agent that sends these payloads. */
async function answerWith(page: Page, payloads: [string, unknown][]): Promise<void> {
  const id = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
  const frames = [...payloads, ["CLOSE", "completed"] as const].map(([op, p], n) => {
    const packet = { stream_id: id, seq: n + 1, op, t: "2026-02-03T10:15:37Z", p };
    return `event: stream.packet\nid: ${id}:${n + 1}\ndata: ${JSON.stringify(packet)}\n\n`;
  });
  await page.route(
    "**/assist",
    (route) => route.fulfill({ contentType: "text/event-stream", body: frames.join("") }),
    { times: 1 },
  );
}

test("what an agent writes cannot run script", async () => {
  const { page } = open;
  const event = (type: string, data: unknown): [string, unknown] => [
    "EVENT",
    { id: "1", timestamp: "2026-02-03T10:15:37Z", type, data },
  ];
  await page.evaluate(() => Object.assign(window, { ran: 0 }));
  await answerWith(page, [
    [
      "DELTA",
      "<img src=x onerror='ran=1'> [click](javascript:ran=1) [tab](java\tscript:ran=1) " +
        "<script>ran=1</script> ![p](data:text/html,<script>ran=1</script>)",
    ],
    event("MARKDOWN_BLOCK", {
      content:
        "[a](JaVaScRiPt:ran=1)\n\n<a href='javascript:ran=1'>b</a>\n\n[fine](https://example.org/)",
    }),
    event("CITATION_BLOCK", {
      citations: [{ source_id: "1", uri: "javascript:ran=1", title: "cited", confidence: 1 }],
    }),
    event("MEDIA_CAROUSEL", {
      items: [
        { url: "javascript:ran=1", mime_type: "image/png", alt_text: "pictured" },
        { url: "data:image/svg+xml;base64,PHN2Zy8+", mime_type: "image/svg+xml" },
      ],
    }),
  ]);
  await say(page, "anything");
  await ended(page, "closed");
  const turn = lastTurn(page);
  const links = await turn
    .getByRole("link")
    .evaluateAll((all) => all.map((link) => (link as HTMLAnchorElement).href));
  // Except the link to the run in the console.
  expect(links.filter((link) => !link.includes("/console/runs/"))).toEqual([
    "https://example.org/",
  ]);
  for (const text of ["click", "cited"]) await turn.getByText(text, { exact: true }).click();
  expect(await turn.locator("img, script, iframe").count()).toBe(0);
  expect(await page.evaluate(() => (window as unknown as { ran: number }).ran)).toBe(0);
});

test("the page comes with a strict policy and needs nothing from elsewhere", async () => {
  // Answers from this file only are not requested again.
  await open.page.getByRole("button", { name: "New conversation" }).click();
  const asked: string[] = [];
  open.page.on("request", (request) => asked.push(new URL(request.url()).origin));
  const response = await open.page.reload();
  expect(response?.headers()["content-security-policy"]).toMatch(
    /default-src 'none'; script-src 'self'; style-src 'self'/,
  );
  expect(new Set(asked)).toEqual(new Set([stage.gateway.url]));
  const source = await response?.text();
  expect(source).not.toMatch(/<script(?![^>]*src=)/);
  expect(readFileSync(new URL("../../playground/dist/index.html", import.meta.url), "utf8")).toBe(
    source,
  );
});
