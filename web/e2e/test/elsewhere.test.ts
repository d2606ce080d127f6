// Tenants and their keys, pages of other origins.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

import { expect, test } from "vitest";

import { ended, say, textOf, visit } from "./browser.js";
import { startGateway } from "../../testing/gateway.mjs";
import { setStage } from "./stage.js";

const KEY = "sk_e2e_0123456789";
const HASH = createHash("sha256").update(KEY).digest("hex");
const TENANTS = `[[tenants]]\nname = "acme"\nkeys = ["sha256:${HASH}"]\n`;

const stage = setStage();

test("a gateway with tenants is asked for with a key, which stays in the tab", async () => {
  const strict = await startGateway({ config: TENANTS });
  const { page } = await visit(stage.browser, strict.url);
  const dialog = page.getByRole("dialog", { name: "A key, please" });
  await dialog.getByLabel("Key").fill("sk_wrong");
  await dialog.getByRole("button", { name: "Use it" }).click();
  await dialog.getByRole("alert").waitFor();
  await dialog.getByLabel("Key").fill(KEY);
  await page.keyboard.press("Enter");
  await dialog.waitFor({ state: "hidden" });
  await say(page, "/tokens 3");
  await ended(page, "closed");
  expect(await textOf(page)).toBe("tok1 tok2 tok3");
  const kept = await page.evaluate(() =>
    [JSON.stringify(localStorage), document.cookie, location.href].join(" "),
  );
  expect(kept).not.toContain(KEY);
  const other = await page.context().newPage();
  await other.goto(strict.url);
  await other.getByRole("dialog", { name: "A key, please" }).waitFor();
  await page.context().close();
  await strict.stop();
});

/** A page on another port with the built package. The test reads `window.result` of its script. */
async function inForeignPage(script: string): Promise<unknown> {
  const dist = new URL("../../packages/capstan/dist/", import.meta.url);
  const server = createServer((request, response) => {
    if (request.url === "/")
      return response
        .setHeader("content-type", "text/html")
        .end('<link rel="icon" href="data:,"><script type="module" src="/page.js"></script>');
    response.setHeader("content-type", "text/javascript");
    response.end(
      request.url === "/page.js" ? script : readFileSync(new URL(`.${request.url}`, dist)),
    );
  });
  const { page, complaints } = await visit(stage.browser, await listen(server));
  const result = await page.waitForFunction(
    () => (window as unknown as { result?: unknown }).result,
    null,
    { timeout: 20_000 },
  );
  const value = await result.jsonValue();
  await page.context().close();
  server.close();
  expect(complaints).toEqual([]);
  return value;
}

async function listen(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test("a page of another origin chats, heals and stops", async () => {
  const result = await inForeignPage(`
    import { CapClient } from "/index.js";
    let request;
    const fetch = (url, init) => {
      request = new AbortController();
      init.signal?.addEventListener("abort", () => request.abort());
      return window.fetch(url, { ...init, signal: request.signal });
    };
    const notices = [];
    const onNotice = ({ type }) => notices.push(type);
    const client = new CapClient("${stage.gateway.url}/v1", "any", { fetch, onNotice });
    const resumes = () => notices.filter((type) => type === "resumed").length;
    const chat = client.chat("/tokens 200 --delay 15ms");
    let text = "", cuts = 0;
    for await (const piece of chat) {
      text += piece;
      if (cuts < 3 && resumes() === cuts) { cuts += 1; request.abort(); }
    }
    await client.stop(chat.streamId);
    window.result = { text, resumes: resumes() };`);
  const text = Array.from({ length: 200 }, (_, n) => `tok${n + 1} `).join("");
  expect(result).toEqual({ text, resumes: 3 });
});

test("in a browser no redirect takes a question elsewhere", async () => {
  const asked: string[] = [];
  const cors = {
    "access-control-allow-origin": "*",
    "access-control-allow-headers": "*",
    "access-control-allow-methods": "*",
  };
  const elsewhere = createServer((request, response) => {
    asked.push(request.method ?? "");
    response.writeHead(200, cors).end();
  });
  const target = await listen(elsewhere);
  const redirecting = createServer((request, response) => {
    response
      .writeHead(request.method === "OPTIONS" ? 204 : 307, {
        ...cors,
        location: `${target}/assist`,
      })
      .end();
  });
  const result = await inForeignPage(`
    import { CapClient } from "/index.js";
    const client = new CapClient("${await listen(redirecting)}");
    const failed = (error) => error.name + ": " + error.message;
    window.result = await client.chat("a secret").collect().catch(failed);`);
  expect(result).toMatch(/^CAPProtocolError: redirected, which is not followed/);
  expect(asked).toEqual([]);
  for (const server of [elsewhere, redirecting]) server.close();
});
