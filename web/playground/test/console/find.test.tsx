// @vitest-environment happy-dom
// A refused request: the answer that its client got.
import { expect, test } from "vitest";

import type { Refusal } from "../../src/console/generated/answers.js";
import { Find } from "../../src/console/views/Find.js";
import { at } from "./rows.js";
import { stage } from "./stage.js";

const told = async (changed: Partial<Refusal>) => {
  const refusal: Refusal = {
    at: at(0),
    request_id: "r",
    route: "/v1/assist",
    code: "rate_limit_exceeded",
    title: "Too many",
    status: 429,
    ms: 1,
    ...changed,
  };
  return (
    await stage(<Find q="r" />, {
      api: { find: async () => ({ hits: [], refusals: [refusal], looked: [] }) },
    })
  ).text();
};

test("a refusal says after how long to come again, if its caller was told", async () => {
  expect(await told({ retry_after: 7 })).toContain("retry after 7 s");
  expect(await told({ retry_after: 0 })).toContain("retry after 0 s");
  expect(await told({})).not.toContain("retry after");
});
