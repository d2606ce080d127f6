// One browser for all files. Each connects to it and opens its own pages.
import { existsSync } from "node:fs";

import { chromium } from "playwright-core";
import type { TestProject } from "vitest/node";

// The headless shell is the same engine without windows, and takes half the processor time.
const PLACES = [
  process.env["CHROMIUM"],
  "/usr/bin/chromium-headless-shell",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
];

declare module "vitest" {
  export interface ProvidedContext {
    browser: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const executablePath = PLACES.find((path) => path !== undefined && existsSync(path));
  if (!executablePath)
    throw new Error("chromium is missing: apt-get install chromium, or name it in CHROMIUM");
  // In a container there is no user namespace for the sandbox; the pages are our own.
  const server = await chromium.launchServer({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu"],
  });
  project.provide("browser", server.wsEndpoint());
  return () => server.close();
}
