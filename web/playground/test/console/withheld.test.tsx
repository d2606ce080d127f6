// @vitest-environment happy-dom
// Why content is hidden, and what a request for it means, by visitor and configuration.
import { expect, test } from "vitest";

import type { Me } from "../../src/console/generated/answers.js";
import { Withheld } from "../../src/console/parts/Withheld.js";
import { stage } from "./stage.js";

const textFor = async (me: Partial<Me>, may = true) =>
  (
    await stage(<Withheld may={may} onAsk={() => {}} />, { me: { content: "asked", ...me } })
  ).text();

test("only operators see that the request is logged", async () => {
  expect(await textFor({ who: "operator" })).toContain(
    "is shown on request, and the request is logged.",
  );
  for (const who of ["tenant", "local"] as const) {
    expect(await textFor({ who })).toContain("is shown on request.");
    expect(await textFor({ who })).not.toContain("logged");
  }
});

test("the reason for hidden content is named: the gateway, the key, or the tenant", async () => {
  const never = await textFor({ content: "never" }, false);
  expect(never).toContain('This gateway shows no content: console.content is "never".');
  expect(never).not.toContain("key");
  expect(await textFor({ who: "operator", may: ["look"] }, false)).toContain(
    "your key shows the shape of runs only",
  );
  expect(await textFor({ who: "operator", may: ["look", "content"] }, false)).toContain(
    "its tenant does not allow it",
  );
});

test("a gateway that shows no content has no button for it, whatever the key may", async () => {
  const { find } = await stage(<Withheld may onAsk={() => {}} />, { me: { content: "never" } });
  expect(find("button")).toBeNull();
});
