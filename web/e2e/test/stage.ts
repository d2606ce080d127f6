// The setup of every test file: a browser and a gateway. The console of each page must stay empty.
import { CapClient } from "capstan";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect } from "vitest";

import { connect, visit, type Visit } from "./browser.js";
import { type Gateway, startGateway } from "../../testing/gateway.mjs";

/**
 * Retries follow without a noticeable wait, and words follow after a few milliseconds, so that
 * events have an order but words are painted one by one.
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
  /** The gateway's answer to a message without faults. */
  whole: (message: string) => Promise<string>;
}

/** Prepares the setup of a file. Its members exist once the tests run. */
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
