// @vitest-environment happy-dom
// The search field can be reached and left by the keyboard.
import { act } from "react";
import { expect, test } from "vitest";

import { SearchBox } from "../../src/console/Shell.js";
import { stage } from "./stage.js";

test("Escape leaves the search box", async () => {
  const { find } = await stage(<SearchBox box={{ current: null }} />);
  const box = find<HTMLInputElement>("input")!;
  const press = (key: string) =>
    act(async () => void box.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })));
  box.focus();
  await press("a");
  expect(document.activeElement).toBe(box);
  await press("Escape");
  expect(document.activeElement).not.toBe(box);
});
