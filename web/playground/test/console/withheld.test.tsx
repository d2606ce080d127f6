// @vitest-environment happy-dom
// Why content is hidden, and what a request for it means, by visitor and configuration.
import { expect, test } from "vitest";

import type { Me } from "../../src/console/generated/answers.js";
import { Withheld } from "../../src/console/parts/Withheld.js";
import { stage } from "./stage.js";

const told = async (me: Partial<Me>, may = true) =>
  (
    await stage(<Withheld may={may} onAsk={() => {}} />, { me: { content: "asked", ...me } })
  ).text();

test("only an operator is told that asking is logged, since only an operator's is", async () => {
  expect(await told({ who: "operator" })).toContain(
    "is shown when you ask for it, and asking is logged.",
  );
  for (const who of ["tenant", "local"] as const) {
    expect(await told({ who })).toContain("is shown when you ask for it.");
    expect(await told({ who })).not.toContain("logged");
  }
});

test("what keeps content back is named: the gateway, the key, or the tenant", async () => {
  const never = await told({ content: "never" }, false);
  expect(never).toContain(
    'This gateway shows nothing of what was said: console.content is "never".',
  );
  expect(never).not.toContain("key");
  expect(await told({ who: "operator", may: ["look"] }, false)).toContain(
    "your key shows the shape of runs only",
  );
  expect(await told({ who: "operator", may: ["look", "content"] }, false)).toContain(
    "its tenant keeps it to itself",
  );
});

test("a gateway that shows no content has no button for it, whatever the key may", async () => {
  const { find } = await stage(<Withheld may onAsk={() => {}} />, { me: { content: "never" } });
  expect(find("button")).toBeNull();
});
