// @vitest-environment happy-dom
// The page of a run: a link may name a packet that does not exist.
import { expect, test } from "vitest";

import type { RunStatus } from "../../src/console/generated/answers.js";
import { Run } from "../../src/console/views/Run.js";
import { detailOf } from "./rows.js";
import { stage } from "./stage.js";

const shown = (at: number, state: RunStatus = "done") => {
  const detail = detailOf({}, { state, packets: 81 });
  const marks = async () => ({ marks: [], complete: true, read_to: 81, sampled: false });
  return stage(<Run id={detail.row.stream_id} />, {
    api: { run: async () => detail, marks },
    me: { content: "asked" },
    at: `/console/runs/${detail.row.stream_id}?at=${at}`,
  });
};

test("a packet beyond the last is said not to be there", async () => {
  expect((await shown(999)).text()).toContain("There is no packet 999: you see the last one, 81.");
  expect((await shown(999, "running")).text()).toContain(
    "There is no packet 999 yet: you see the last one, 81.",
  );
  for (const at of [0, 81]) expect((await shown(at)).text()).not.toContain("There is no packet");
});
