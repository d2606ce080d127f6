// @vitest-environment happy-dom
// Faults as text: screen readers get the visible facts, and no more.
import { expect, test } from "vitest";

import type { FaultDetails, FaultTable } from "../../src/console/generated/answers.js";
import { FaultPanel } from "../../src/console/run/FaultPanel.js";
import { Faults } from "../../src/console/views/Faults.js";
import { at, BEGAN, detailOf } from "./rows.js";
import { stage } from "./stage.js";

const FOUND: FaultTable = {
  from: at(0),
  to: at(120_000),
  step_seconds: 60,
  cells: [
    { code: "timeout", title: "Timeout", agent: "demo", fatal: 1, healed: 2, refused: 3 },
    { code: "auth", title: null, agent: "demo", fatal: 0, healed: 1_500, refused: 0 },
  ],
  series: [{ at: at(0), fatal: 1, healed: 2, refused: 3 }],
  runs_total: 9,
};

test("a failed attempt of a run that went on is shown as tried again", async () => {
  const { text, container } = await stage(<Faults />, {
    api: { faults: async () => FOUND },
    at: "/console/faults",
  });
  expect(container.querySelector("tr:last-child td")?.textContent).toContain(
    "1 fatal · 2 tried again · 3 refused",
  );
  expect(container.querySelector("figcaption")?.textContent).toContain("tried again");
  expect(text()).not.toContain("healed");
});

test("a number of the matrix is called what it shows, behind what it is of", async () => {
  const { container } = await stage(<Faults />, {
    api: { faults: async () => FOUND },
    at: "/console/faults",
  });
  const links = [...container.querySelectorAll(".matrix a")];
  expect(links.map((link) => link.textContent)).toEqual([
    "auth, demo: 1,500 tried again",
    "auth, all agents: 1,500",
    "timeout, demo: 1 fatal · 2 tried again",
    "timeout, all agents: 6",
  ]);
  expect(links.filter((link) => link.hasAttribute("aria-label"))).toEqual([]);
});

const FAULT: FaultDetails = {
  code: "upstream_error",
  status: 502,
  agui_code: "UPSTREAM_ERROR",
  others_last_hour: 0,
};

test.each([
  [3, "3 others with this code in the last hour", /fault=upstream_error&since=/],
  [1, "1 other with this code in the last hour", /since=/],
  [0, "See others with this code", /\?fault=upstream_error$/],
])("%i others lead to their list", async (others_last_hour, words, href) => {
  const { find } = await stage(
    <FaultPanel
      detail={detailOf({}, { state: "failed" })}
      fault={{ ...FAULT, others_last_hour }}
      now={BEGAN}
    />,
  );
  expect(find("a[href*='fault=']")?.textContent).toBe(words);
  expect(find("a[href*='fault=']")?.getAttribute("href")).toMatch(href);
});

test("the status is for collected responses; a stream has a packet", async () => {
  const { text } = await stage(
    <FaultPanel detail={detailOf({}, { state: "failed" })} fault={FAULT} now={BEGAN} />,
  );
  expect(text()).toContain(
    "a client that waits for the whole answer sees HTTP 502; in a stream it is an ERROR packet",
  );
  expect(text()).toContain("AG-UI code UPSTREAM");
});
