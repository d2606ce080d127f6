// An answer as a user reads it: markdown, code, both text directions, and the actions on a message.
import type { Page } from "playwright-core";
import { expect, test } from "vitest";

import { ended, lastTurn, say, textOf, visit } from "./browser.js";
import { expectFit, setTheme } from "./console.js";
import { startGateway } from "../../testing/gateway.mjs";
import { setStage } from "./stage.js";

const stage = setStage();

const ANSWER = `# A plan

1. First
   - nested
     - deeper
   - back
2. Second

- [x] done
- [ ] open

~~gone~~, see https://example.org/a.

| name | count | note |
|:-----|------:|:----:|
| capstan | 12 | \`code|pipe\` |
| internationalisation | 3 | a |

\`\`\`ts
const answer: number = 42; // yes
\`\`\`

שלום עולם, this is read from the right.
`;

async function answered(page: Page, text = ANSWER): Promise<void> {
  await say(page, `/echo ${text}`);
  await ended(page, "closed");
}

test("lists nest and count on, tasks have boxes, and what is struck out is", async () => {
  const page = await stage.start();
  await answered(page);
  const answer = lastTurn(page).locator(".answer");
  expect(await answer.locator("ol > li").count()).toBe(2);
  expect(await answer.locator("ol > li > ul > li").allInnerTexts()).toEqual([
    "nested\ndeeper",
    "back",
  ]);
  expect(await answer.locator("ol > li > ul > li > ul > li").innerText()).toBe("deeper");
  expect(await answer.getByRole("checkbox", { name: "done" }).isChecked()).toBe(true);
  expect(await answer.getByRole("checkbox", { name: "to do" }).isChecked()).toBe(false);
  expect(await answer.locator("s").innerText()).toBe("gone");
  const link = answer.getByRole("link", { name: "https://example.org/a", exact: true });
  expect(await link.getAttribute("href")).toBe("https://example.org/a");
  expect(await link.getAttribute("rel")).toContain("noopener");
});

test("cells stand on their side, keep pipes within code, and break no word", async () => {
  const page = await stage.start({ viewport: { width: 320, height: 640 } });
  await answered(page);
  const cells = lastTurn(page).locator("td");
  expect(await cells.allInnerTexts()).toEqual([
    "capstan",
    "12",
    "code|pipe",
    "internationalisation",
    "3",
    "a",
  ]);
  const sides = await cells.evaluateAll((all) =>
    all.slice(0, 3).map((cell) => getComputedStyle(cell).textAlign),
  );
  expect(sides).toEqual(["left", "right", "center"]);
  const lines = await cells.nth(3).evaluate((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getClientRects().length;
  });
  expect(lines).toBe(1);
  expect(
    await page.evaluate(() => document.documentElement.scrollWidth - innerWidth),
  ).toBeLessThanOrEqual(0);
});

test("code says its language, has colours, and is copied whole", async () => {
  const page = await stage.start();
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await answered(page);
  const code = lastTurn(page).locator("figure.code");
  expect(await code.locator("figcaption span").innerText()).toBe("ts");
  await code.locator(".hljs-keyword", { hasText: "const" }).waitFor();
  await code.getByRole("button", { name: "Copy code" }).click();
  await code.getByRole("button", { name: "code copied" }).waitFor();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(
    "const answer: number = 42; // yes",
  );
});

test("text goes from right to left where its first letter does", async () => {
  const page = await stage.start();
  await say(page, "/echo שלום\n\nHello");
  await ended(page, "closed");
  const turn = lastTurn(page);
  const directions = await turn
    .locator(".prose > p")
    .evaluateAll((all) => all.map((one) => getComputedStyle(one).direction));
  expect(directions).toEqual(["rtl", "ltr"]);
  await say(page, "שלום");
  await ended(page, "closed");
  expect(
    await lastTurn(page)
      .locator(".question")
      .evaluate((one) => getComputedStyle(one).direction),
  ).toBe("rtl");
});

test("an answer that streams ends as the whole text does", async () => {
  const page = await stage.start();
  await answered(page);
  // The first code block loads the highlighter.
  const highlighted = lastTurn(page).locator(".hljs-keyword");
  await highlighted.waitFor();
  const streamed = await lastTurn(page).locator(".prose").innerHTML();
  await page.reload();
  await highlighted.waitFor();
  expect(await lastTurn(page).locator(".prose").innerHTML()).toBe(streamed);
});

test("messages and answers are copied as they were written", async () => {
  const page = await stage.start();
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await answered(page, "**one**");
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await lastTurn(page).getByRole("button", { name: "Copy message" }).click();
  await expect.poll(copied).toBe("/echo **one**");
  await lastTurn(page).getByRole("button", { name: "Copy answer" }).click();
  await expect.poll(copied).toBe("**one**");
});

test.each(["cap", "ag-ui", "openai", "ai-sdk"])(
  "%s: what is asked again takes the place of what followed",
  async (face) => {
    const page = await stage.start();
    const bodies: string[] = [];
    page.on(
      "request",
      (request) => request.method() === "POST" && bodies.push(request.postData() ?? ""),
    );
    await page.getByLabel("Face").selectOption(face);
    for (const word of ["one", "two", "three"]) await answered(page, word);
    const second = page.locator(".turn").nth(1);
    await second.getByRole("button", { name: "Edit message" }).click();
    await second.getByRole("textbox", { name: "Edited message" }).fill("/echo other");
    await page.keyboard.press("Enter");
    await expect.poll(() => page.locator(".turn").count()).toBe(2);
    await ended(page, "closed");
    expect(await textOf(page)).toBe("other");
    // The request has the turn before, and none of the removed turns.
    expect(bodies.at(-1)).toContain("/echo one");
    for (const gone of ["two", "three"]) expect(bodies.at(-1)).not.toContain(gone);

    await lastTurn(page).getByRole("button", { name: "Regenerate" }).click();
    await expect.poll(() => bodies.length).toBe(5);
    await ended(page, "closed");
    expect(await page.locator(".turn").count()).toBe(2);
    expect([await textOf(page), bodies.at(-1)?.split("/echo other").length]).toEqual(["other", 2]);

    // Later turns continue from there.
    await answered(page, "four");
    for (const told of ["/echo one", "/echo other", "/echo four"])
      expect(bodies.at(-1)).toContain(told);
    expect(bodies.at(-1)).not.toContain("three");
    expect(await page.locator(".turn").count()).toBe(3);
  },
);

test("conversations are listed, opened, renamed and deleted, and a reload finds them", async () => {
  const page = await stage.start();
  await answered(page, "one");
  await page.getByRole("button", { name: "New conversation" }).click();
  await page.getByText("Cut the line. The answer heals.").waitFor();
  await answered(page, "two");
  await page.getByRole("button", { name: "Conversations" }).click();
  const dialog = page.getByRole("dialog", { name: "Conversations" });
  const names = () => dialog.locator(".conversation").allInnerTexts();
  expect(await names()).toEqual(["/echo two", "/echo one"]);
  await dialog.getByRole("button", { name: "/echo one", exact: true }).click();
  await expect.poll(() => textOf(page)).toBe("one");

  await page.reload();
  await expect.poll(() => textOf(page)).toBe("one");
  await page.getByRole("button", { name: "Conversations" }).click();
  await dialog.getByRole("button", { name: "Rename /echo two" }).click();
  await dialog.getByRole("textbox", { name: "Name" }).fill("The second");
  await page.keyboard.press("Enter");
  await expect.poll(names).toEqual(["/echo one", "The second"]);
  await dialog.getByRole("button", { name: "Delete /echo one" }).click();
  await expect.poll(() => textOf(page)).toBe("two");
  expect(await page.evaluate(() => sessionStorage.getItem("capstan-conversations"))).not.toContain(
    "/echo one",
  );
});

test("a run goes on while another conversation is open, and is found again", async () => {
  const page = await stage.start();
  await say(page, "/tokens 40 --delay 50ms");
  await lastTurn(page).getByText("tok2").waitFor();
  await page.getByRole("button", { name: "New conversation" }).click();
  await answered(page, "other");
  await page.getByRole("button", { name: "Conversations" }).click();
  await page
    .getByRole("dialog")
    .getByRole("button", { name: "/tokens 40 --delay 50ms", exact: true })
    .click();
  await ended(page, "closed");
  expect(await textOf(page)).toBe(await stage.whole("/tokens 40"));
  expect(await page.locator(".turn").count()).toBe(1);
});

test("agents stand as they are configured, and the console has its link in the head", async () => {
  const names = ["zoe", "mia", "adam"];
  const config = names.map((name) => `[[agents]]\nname = "${name}"\nkind = "demo"\n`).join("");
  const gateway = await startGateway({ config });
  const { page } = await visit(stage.browser, gateway.url);
  await expect
    .poll(() => page.getByLabel("Agent").locator("option").allInnerTexts())
    .toEqual(names);
  const [other] = await Promise.all([
    page.context().waitForEvent("page"),
    page.getByRole("link", { name: "Console" }).click(),
  ]);
  await other.getByRole("navigation", { name: "Console" }).waitFor();
  await page.context().close();
  await gateway.stop();
});

test("without a console at this address there is no link to one", async () => {
  const gateway = await startGateway({ config: "[console]\nenabled = false\n" });
  const { page } = await visit(stage.browser, gateway.url);
  // The page sends its request while it loads, perhaps before the test waits for it.
  await Promise.all([
    page.waitForResponse((response) => response.url().endsWith("/v1/console/me")),
    page.reload(),
  ]);
  expect(await page.getByRole("link", { name: "Docs" }).count()).toBe(1);
  expect(await page.getByRole("link", { name: "Console" }).count()).toBe(0);
  await page.context().close();
  await gateway.stop();
});

test.each(["light", "dark"] as const)(
  "everybody can read the page and use it: %s",
  async (theme) => {
    const page = await stage.start();
    await setTheme(page, theme);
    await answered(page);
    await lastTurn(page).locator(".hljs-keyword").waitFor();
    await expectFit(page);
    await page.getByRole("button", { name: "Conversations" }).click();
    await expectFit(page);
  },
);
