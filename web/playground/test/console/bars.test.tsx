// @vitest-environment happy-dom
// A range of bars is selected, extended, described and chosen by keys only.
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { type Bar, Bars } from "../../src/console/parts/Bars.js";

const hour = (n: number): Bar => ({ at: `2026-11-18T0${n}:00:00.000Z`, parts: [n, 0, 0] });
const choose = vi.fn();
let root: Root;
let container: HTMLElement;

beforeEach(() => {
  vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
  container = document.body.appendChild(document.createElement("div"));
  root = createRoot(container);
  show(0, 1, 2, 3, 4);
});
afterEach(() => {
  act(() => root.unmount());
  container.remove();
  choose.mockClear();
  vi.unstubAllGlobals();
});

function show(...hours: number[]): void {
  const describe = (from: Bar, to: Bar) => `${from.parts[0]} to ${to.parts[0]}`;
  act(() =>
    root.render(
      <Bars
        bars={hours.map(hour)}
        tones={["danger", "good", "neutral"]}
        label="Faults"
        describedBy="how"
        describe={describe}
        onChoose={(from, to) => choose(from.at, to.at)}
      />,
    ),
  );
}

const picture = () => container.querySelector<HTMLElement>("[role=slider]")!;
const told = () => picture().getAttribute("aria-valuetext");

/** Presses a key. Returns whether the browser would also handle it. */
function press(key: string, more: KeyboardEventInit = {}): boolean {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more });
  act(() => void picture().dispatchEvent(event));
  return !event.defaultPrevented;
}

test("keys move over the bars and stay within them", () => {
  expect([picture().tabIndex, told()]).toEqual([0, "nothing is marked"]);
  const seen = [
    "ArrowLeft",
    "ArrowLeft",
    "ArrowRight",
    "ArrowRight",
    "Home",
    "ArrowLeft",
    "End",
  ].map((key) => [press(key), told()]);
  expect(seen).toEqual(
    ["4 to 4", "3 to 3", "4 to 4", "4 to 4", "0 to 0", "0 to 0", "4 to 4"].map((words) => [
      false,
      words,
    ]),
  );
  press("Escape");
  press("ArrowRight");
  expect([
    told(),
    picture().getAttribute("aria-valuenow"),
    picture().getAttribute("aria-valuemax"),
  ]).toEqual(["0 to 0", "0", "4"]);
});

test.each(["Enter", " "])("Shift makes the stretch longer, and %j chooses it once", (key) => {
  press(key);
  press("ArrowLeft");
  press("ArrowLeft");
  press("ArrowLeft", { shiftKey: true });
  expect(told()).toBe("2 to 3");
  press("Home", { shiftKey: true });
  expect(told()).toBe("0 to 3");
  expect(choose).not.toHaveBeenCalled();
  press(key);
  press(key);
  expect(choose.mock.calls).toEqual([[hour(0).at, hour(3).at]]);
  expect(told()).toBe("nothing is marked");
});

test("Escape lets go, and so does whoever goes elsewhere", () => {
  press("End");
  press("Escape");
  expect(told()).toBe("nothing is marked");
  press("End");
  act(() => void picture().dispatchEvent(new FocusEvent("focusout", { bubbles: true })));
  expect(told()).toBe("nothing is marked");
});

test("a stretch stays what it was while bars move on under it", () => {
  press("End");
  press("ArrowLeft", { shiftKey: true });
  show(2, 3, 4, 5, 6);
  expect(told()).toBe("3 to 4");
  show(4, 5, 6, 7, 8);
  expect(told()).toBe("4 to 4");
});

test("the browser's own keys are left to it", () => {
  expect([
    press("ArrowLeft", { altKey: true }),
    press("End", { ctrlKey: true }),
    press("Tab"),
    press("j"),
  ]).toEqual([true, true, true, true]);
  expect(told()).toBe("nothing is marked");
});
