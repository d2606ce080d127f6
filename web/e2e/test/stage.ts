// What every file of tests has: a browser and a gateway of its own. Each page's console must stay
// quiet.
import { CapClient } from "capstan";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect } from "vitest";

import { connect, visit, type Visit } from "./browser.js";
import { type Gateway, startGateway } from "../../testing/gateway.mjs";

/**
 * A second attempt follows the first without a wait worth speaking of, and answers come nearly so:
 * each word that comes alone is painted alone. A few milliseconds apart, so that what happens has
 * an order.
 */
const config =
  '[[agents]]\nname = "demo"\nkind = "demo"\ndelay = 0.003\n\n[timeouts]\nbackoff = 0.01\n';

/** `make soak` tries every combination. */
export const soaks = Boolean(process.env["CAPSTAN_SOAK"]);

export interface Stage {
  browser: Browser;
  gateway: Gateway;
  /** Opens the gateway's page for one test. */
  start: (options?: BrowserContextOptions) => Promise<Page>;
  /** What the gateway says to a message when nothing breaks. */
  whole: (message: string) => Promise<string>;
}

/** Sets the stage for a file; its members are there once the tests run. */
export function setStage(): Stage {
  const stage = {} as Stage;
  let open: Visit | undefined;
  beforeAll(async () => {
    [stage.browser, stage.gateway] = await Promise.all([connect(), startGateway({ config })]);
  });
  afterAll(() => Promise.all([stage.browser?.close(), stage.gateway?.stop()]));
  afterEach(async () => {
    const complaints = open?.complaints ?? [];
    await open?.page.context().close();
    open = undefined;
    expect(complaints, "the console has no errors").toEqual([]);
  });
  stage.start = async (options = {}) => {
    open = await visit(stage.browser, stage.gateway.url, options);
    return open.page;
  };
  stage.whole = async (message) =>
    (await new CapClient(`${stage.gateway.url}/v1`).chat(message).collect()).trim();
  return stage;
}
