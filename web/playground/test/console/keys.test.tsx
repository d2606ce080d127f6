// @vitest-environment happy-dom
// The focus decides whether a key is a shortcut.
import type { ReactNode } from "react";
import { expect, test, vi } from "vitest";

import { useShortcuts } from "../../src/console/keys.js";
import { stage } from "./stage.js";

function Page({ onT, onSpace }: { onT: () => void; onSpace: () => void }): ReactNode {
  useShortcuts({ t: onT, " ": onSpace });
  return (
    <>
      <p>text</p>
      <input type="search" />
      <input type="checkbox" role="switch" />
      <input type="range" />
      <textarea />
      <button type="button">press</button>
    </>
  );
}

test.each([
  ["p", true, true],
  ["[type=search]", false, false],
  ["textarea", false, false],
  ["[type=checkbox]", true, false],
  ["[type=range]", true, false],
  ["button", true, false],
])("in %s a letter is a shortcut: %s, Space is one: %s", async (place, letter, space) => {
  const [onT, onSpace] = [vi.fn(), vi.fn()];
  const { find } = await stage(<Page onT={onT} onSpace={onSpace} />);
  for (const key of ["t", " "])
    find(place)!.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  expect([onT.mock.calls.length, onSpace.mock.calls.length]).toEqual([
    Number(letter),
    Number(space),
  ]);
});
