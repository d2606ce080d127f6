// Markdown becomes elements, and nothing else: no HTML, no script, no address that could be one.
import { renderToStaticMarkup } from "react-dom/server";
import { expect, test } from "vitest";

import { Markdown } from "../src/markdown.js";
import { safeLink, safeMedia, safePicture } from "../src/safe-url.js";

const html = (text: string) => renderToStaticMarkup(<Markdown text={text} />).replace(/^<div class="prose">|<\/div>$/g, "");

test("the useful part of markdown is rendered", () => {
  expect(html("# One\n\ntwo **three** *four* `five*six*`")).toBe("<h3>One</h3><p>two <strong>three</strong> <em>four</em> <code>five*six*</code></p>");
  expect(html("- a\n- b\n  more\n\n3. c\n4. d")).toBe('<ul><li>a</li><li>b more</li></ul><ol start="3"><li>c</li><li>d</li></ol>');
  expect(html("> quoted\n\n---\n\n```ts\n<b>\n```")).toBe("<blockquote><p>quoted</p></blockquote><hr/><pre><code>&lt;b&gt;</code></pre>");
  expect(html("| a | b |\n|---|---|\n| 1 | **2** |")).toContain("<th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><strong>2</strong></td>");
});

test("a fence ends at a fence, not at a line that begins like one", () => {
  expect(html("```\na\n```b c\n~~~\n```\nd")).toBe("<pre><code>a\n```b c\n~~~</code></pre><p>d</p>");
  expect(html("```\na\n````  \nb")).toBe("<pre><code>a</code></pre><p>b</p>");
});

test("what is not finished yet is text", () => {
  for (const text of ["**bold", "`code", "[link](http", "| a |", "```\ncode", "snake_case_name", "2 * 3 * 4"]) {
    expect(html(text).replace(/<[^>]+>/g, "").replaceAll("\n", ""), text).toBe(text.replace(/^```\n/, ""));
  }
});

test("links leave nothing behind, and dangerous ones are text", () => {
  expect(html("[a](https://example.org/x_(y))")).toContain('<a href="https://example.org/x_(y)" target="_blank" rel="noopener noreferrer nofollow">a</a>');
  for (const address of ["javascript:alert(1)", "JAVASCRIPT:x", " java\nscript:x", "data:text/html,x", "vbscript:x", "file:///etc", "blob:x", "/v1/streams", "//evil.example"]) {
    expect(html(`[a](${address})`), address).not.toContain("<a ");
    expect(safeLink(address), address).toBeUndefined();
  }
  expect(html("<script>alert(1)</script><img src=x onerror=alert(1)>")).not.toMatch(/<(script|img)/);
});

test("only pictures that bring their own bytes are shown, and no drawings", () => {
  expect(safePicture("data:image/png;base64,aGk=")).toBeDefined();
  for (const url of ["https://example.org/a.png", "data:image/svg+xml;base64,PHN2Zy8+", "data:image/png,<svg>", "data:text/html;base64,aGk="]) {
    expect(safePicture(url)).toBeUndefined();
  }
  expect(safeMedia("data:audio/ogg;base64,aGk=")).toBeDefined();
  expect(safeMedia("data:text/html;base64,aGk=")).toBeUndefined();
});

// A parser that tries every way to read these never comes to an end.
test("long and odd texts are read once", () => {
  for (const text of ["*".repeat(5000), "[".repeat(5000), "`".repeat(5000), "_a ".repeat(5000), "|".repeat(5000), `${"> ".repeat(200)}x`]) html(text);
});
