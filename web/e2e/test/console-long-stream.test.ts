// A long stream, on a processor four times slower than this one. Only in `make soak`.
import { expect, test } from "vitest";

import { ask } from "./console.js";
import { expectSmooth, HEAP, heapOf, slow } from "./smooth.js";
import { setStage } from "./stage.js";

const stage = setStage();
const isLong = process.env["CAPSTAN_SOAK"] !== undefined;
const PACKETS = 100_000;

test.runIf(isLong)(
  "soak: a stream of a hundred thousand packets is zoomed, scrolled and replayed",
  { timeout: 600_000 },
  async () => {
    const { streamId, whole } = await ask(stage.gateway.url, `/tokens ${PACKETS}`);
    await whole;
    const page = await stage.start();
    await page.goto(`${stage.gateway.url}/console/runs/${streamId}?tab=attempts`);
    await page.getByText("A long stream").waitFor();
    const tasks = await slow(page);
    const canvas = page.locator("canvas");
    await canvas.hover();
    await page.keyboard.down("Control");
    for (let n = 0; n < 20; n += 1) await page.mouse.wheel(0, n < 10 ? -120 : 120);
    await page.keyboard.up("Control");
    await expectSmooth(tasks, "zooming");

    await page.getByRole("tab", { name: "Frames" }).click();
    const frames = page.getByRole("rowgroup", { name: "Frames" });
    await page.getByText(/^\d[\d,. ]* frames$/).waitFor({ timeout: 120_000 });
    await expectSmooth(tasks, "reading frames");
    await frames.hover();
    for (let n = 0; n < 40; n += 1) await page.mouse.wheel(0, n < 20 ? 30_000 : -25_000);
    await expectSmooth(tasks, "scrolling frames");

    await page.getByRole("tab", { name: "As seen" }).click();
    await page.getByRole("button", { name: "Play" }).waitFor();
    await tasks();
    // The lowest position that was shown, sampled at every frame.
    await page.getByRole("slider", { name: "Packet" }).evaluate((slider) => {
      Object.assign(window, { least: Infinity });
      const look = () => {
        const seen = window as unknown as { least: number };
        seen.least = Math.min(seen.least, Number((slider as HTMLInputElement).value));
        requestAnimationFrame(look);
      };
      look();
    });
    await page.getByRole("button", { name: "Play" }).click();
    const shown = async () =>
      Number(await page.getByRole("slider", { name: "Packet" }).inputValue());
    // To its end. A fast gateway may have written all of it within a tenth of a second.
    await expect
      .poll(() => page.evaluate(() => (window as unknown as { least: number }).least), {
        timeout: 60_000,
      })
      .toBeLessThan(PACKETS);
    await expect.poll(shown, { timeout: 60_000 }).toBeGreaterThanOrEqual(PACKETS);
    await expectSmooth(tasks, "replay");
    expect(await heapOf(page)).toBeLessThan(3 * HEAP);
  },
);
