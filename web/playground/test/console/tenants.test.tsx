// @vitest-environment happy-dom
// Usage and limits, as numbers, as a bar and as text.
import { expect, test } from "vitest";

import type { TenantDetails, Use } from "../../src/console/generated/answers.js";
import { Tenants } from "../../src/console/views/Tenants.js";
import { stage } from "./stage.js";

const UNLIMITED: Use = { used: 0, limit: null };
const ACME: TenantDetails = {
  name: "acme",
  runs: UNLIMITED,
  responses: UNLIMITED,
  requests_per_minute: UNLIMITED,
  sessions: UNLIMITED,
  bytes: UNLIMITED,
  tokens_today: UNLIMITED,
  retention: { max_age_seconds: 3600, max_bytes: null },
  no_store: false,
  refusals: {},
};

const shown = (runs: Use) =>
  stage(<Tenants />, {
    api: { tenants: async () => ({ tenants: [{ ...ACME, runs }] }) },
  });

test.each([
  [46, 10, "46 of 10, 460 % above the limit", true],
  [10, 10, "10 of 10, 100 % at the limit", true],
  [9, 10, "9 of 10, 90 % near the limit", true],
  [8, 10, "8 of 10, 80 %", false],
  [3, 0, "3 of 0 above the limit", true],
  [0, 0, "0 of 0", false],
])("%i of %i", async (used, limit, words, isHigh) => {
  const { find } = await shown({ used, limit });
  expect(find(".use dd")?.textContent?.trim()).toBe(words);
  expect([find("progress")?.dataset["high"], find<HTMLProgressElement>("progress")!.value]).toEqual(
    [String(isHigh), limit === 0 ? 0 : Math.min(1, used / limit)],
  );
});

test("without a limit there is no bar", async () => {
  const { find } = await shown({ used: 5, limit: null });
  expect([find(".use dd")?.textContent, find("progress")]).toEqual(["5 no limit", null]);
});
