// @vitest-environment happy-dom
// A part that fails to render is replaced alone, and is rendered again when its data change.
import { act, type ReactNode } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { Boundary } from "../src/show/Boundary.js";

let root: Root;
let container: HTMLElement;
const caught = vi.fn();

beforeEach(() => {
  vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
  container = document.createElement("div");
  root = createRoot(container, { onCaughtError: caught });
});
afterEach(() => {
  act(() => root.unmount());
  vi.unstubAllGlobals();
});

function Fragile({ text }: { text: string }): ReactNode {
  if (text === "break") throw new Error("no");
  return <b>{text}</b>;
}

function show(...texts: string[]): string {
  const parts = texts.map((text, n) => (
    <Boundary key={n} of={text} instead={<i>{text}</i>}>
      <Fragile text={text} />
    </Boundary>
  ));
  act(() => root.render(parts));
  return container.innerHTML;
}

test("one part breaks and its neighbours stay", () => {
  expect(show("a", "break", "c")).toBe("<b>a</b><i>break</i><b>c</b>");
  expect(caught).toHaveBeenCalled();
});

test("a part that broke is shown again once it is another", () => {
  show("break");
  expect(show("mended")).toBe("<b>mended</b>");
  expect(show("break")).toBe("<i>break</i>");
  expect(show("break")).toBe("<i>break</i>");
});
