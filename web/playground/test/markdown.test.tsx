// Markdown becomes elements only: no HTML, no script, no dangerous address.
import fc from "fast-check";
import { renderToStaticMarkup } from "react-dom/server";
import { expect, test } from "vitest";

import { loadMarkdown, Markdown } from "../src/markdown/Markdown.js";
import { Growing, parse } from "../src/markdown/growing.js";
import { safeLink, safeMedia, safePicture } from "../src/safe-url.js";
import { anyText } from "./any.js";

await loadMarkdown();

const shown = (text: string) =>
  renderToStaticMarkup(<Markdown text={text} />).replace(/^<div class="prose">|<\/div>$/g, "");
/** Without text direction and the frame of code blocks, which have their own tests. */
const html = (text: string) =>
  shown(text)
    .replaceAll(/ (dir="\w+"|tabindex="0")/g, "")
    .replaceAll(/<figure class="code"><figcaption>.*?<\/figcaption>|<\/figure>/g, "")
    .replaceAll(/<div class="scroll">(.*?)<\/div>/g, "$1");

test("the useful part of markdown is rendered", () => {
  expect(html("# One\n\ntwo **three** *four* `five*six*`")).toBe(
    "<h3>One</h3><p>two <strong>three</strong> <em>four</em> <code>five*six*</code></p>",
  );
  expect(html("- a\n- b\n  more\n\n3. c\n4. d")).toBe(
    '<ul><li>a</li><li>b\nmore</li></ul><ol start="3"><li>c</li><li>d</li></ol>',
  );
  expect(html("> quoted\n\n---\n\n```ts\n<b>\n```")).toBe(
    "<blockquote><p>quoted</p></blockquote><hr/><pre><code>&lt;b&gt;</code></pre>",
  );
  expect(html("| a | b |\n|---|---|\n| 1 | **2** |")).toContain(
    "<th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><strong>2</strong></td>",
  );
});

test("lists nest, count on, and hold paragraphs and code", () => {
  const nested = "<ul><li>b<ul><li>c</li></ul></li><li>d</li></ul>";
  expect(html("1. a\n   - b\n     - c\n   - d\n2. e").replaceAll("\n", "")).toBe(
    `<ol start="1"><li>a${nested}</li><li>e</li></ol>`,
  );
  expect(html("1. a\n\n   ```\n   b\n   ```\n\n2. c")).toBe(
    '<ol start="1"><li><p>a</p><pre><code>b</code></pre></li><li><p>c</p></li></ol>',
  );
  expect(html("1. a\n\ntext\n\n2. b")).toContain('<ol start="2"><li>b</li></ol>');
});

test("a task has its box, and what only looks like one has none", () => {
  const done = '<input type="checkbox" disabled="" aria-label="done" checked=""/>';
  const open = '<input type="checkbox" disabled="" aria-label="to do"/>';
  expect(html("- [x] a\n- [ ] *b*\n- [c] d")).toBe(
    `<ul><li class="task">${done}a</li><li class="task">${open}<em>b</em></li><li>[c] d</li></ul>`,
  );
});

test("cells keep their words, their pipes within code and their side", () => {
  const table = html(
    "| left | right | mid |\n|:--|--:|:-:|\n| `a|b` | c\\|d | `e\\|f` |\n| 1 | 2 | 3 | 4 |",
  );
  const cells = [...table.matchAll(/<t[hd]( class="[\w-]+")?>(.*?)<\/t[hd]>/g)].map(
    ([, side, text]) => [side, text],
  );
  const [left, right, mid] = ["left", "right", "center"].map((side) => ` class="align-${side}"`);
  expect(cells).toEqual([
    ...[
      [left, "left"],
      [right, "right"],
      [mid, "mid"],
    ],
    ...[
      [left, "<code>a|b</code>"],
      [right, "c|d"],
      [mid, "<code>e|f</code>"],
    ],
    ...[
      [left, "1"],
      [right, "2"],
      [mid, "3 | 4"],
    ],
  ]);
  expect(html("`a|b` and ``c`|d`` or `e\n\n```\n`f|g`\n```")).toBe(
    "<p><code>a|b</code> and <code>c`|d</code> or `e</p><pre><code>`f|g`</code></pre>",
  );
});

test("what is struck out is, and titles of links are titles", () => {
  expect(html("~~gone~~")).toBe("<p><s>gone</s></p>");
  expect(html('[a](https://a.example "A title")')).toContain('title="A title"');
  expect(html('[a](https://a.example "A title")')).toMatch(/>a<\/a><\/p>$/);
});

test("a bare link ends before its full stop, and names of files are none", () => {
  const link = (text: string) =>
    /<a href="([^"]*)"[^>]*>(.*?)<\/a>(.*)<\/p>/.exec(html(text))?.slice(1);
  expect(link("See https://a.example/b.")).toEqual([
    "https://a.example/b",
    "https://a.example/b",
    ".",
  ]);
  expect(link("(https://a.example/b_(c)), and")).toEqual([
    "https://a.example/b_(c)",
    "https://a.example/b_(c)",
    "), and",
  ]);
  for (const text of ["README.md", "a.b@c.example", "//a.example", "ftp://a.example", "main.rs"]) {
    expect(html(text)).toBe(`<p>${text}</p>`);
  }
});

test("a picture is a link to it, and its text within another link", () => {
  expect(html("![a](https://a.example/p.png)")).toMatch(
    /<a href="https:\/\/a.example\/p.png"[^>]*>a<\/a>/,
  );
  expect(html("[![a](https://a.example/p.png)](https://b.example)").match(/<a /g)).toHaveLength(1);
});

test("a block of code says its language and can be copied; its direction is left to right", () => {
  const block = shown("```ts title=x\nconst a = 1;\n```");
  expect(block).toMatch(/^<figure class="code" dir="ltr"><figcaption><span>ts<\/span><button /);
  expect(block).toContain('aria-label="Copy code"');
});

test("each block has the direction of its text, and what is inside follows it", () => {
  const text = "# a\n\nb\n\n- c\n\n> d\n\n| e |\n|---|";
  expect(shown(text).match(/<(h3|p|ul|blockquote|table) dir="auto">/g)).toHaveLength(5);
  expect(shown(text)).not.toMatch(/<(li|td|th) dir/);
});

test("a text that grows shows what the whole text shows, wherever it was broken off", () => {
  const defines = /\[[^\]]*\]:/;
  const texts = fc.tuple(
    anyText.filter((text) => !defines.test(text)),
    fc.array(fc.nat(300)),
  );
  // Within a block, lines count from its first line.
  const told = (blocks: unknown) =>
    JSON.stringify(blocks, (name, value: unknown) => (name === "map" ? undefined : value));
  const same = ([text, cuts]: [string, number[]]) => {
    const growing = new Growing();
    for (const cut of cuts.sort((a, b) => a - b)) growing.blocks(text.slice(0, cut));
    return told(growing.blocks(text)) === told(parse(text));
  };
  fc.assert(fc.property(texts, same), { numRuns: 2_000 });
});

test("finished blocks of a text that grows are left alone, and one that changed is not", () => {
  const growing = new Growing();
  const [first] = growing.blocks("# One\n\ntwo\nthree\n\n");
  const more = growing.blocks("# One\n\ntwo\nthree\n\nfour *five*");
  expect(more[0]).toBe(first ?? "nothing");
  expect(growing.blocks("# Another")[0]).not.toBe(first);
});

test("a definition that comes late holds once the text is whole", () => {
  expect(html("[a]\n\nb\n\n[a]: https://a.example")).toContain('<a href="https://a.example/"');
});

test("a fence ends at a fence, not at a line that begins like one", () => {
  expect(html("```\na\n```b c\n~~~\n```\nd")).toBe(
    "<pre><code>a\n```b c\n~~~</code></pre><p>d</p>",
  );
  expect(html("```\na\n````  \nb")).toBe("<pre><code>a</code></pre><p>b</p>");
});

test("what is not finished yet is text", () => {
  for (const text of [
    "**bold",
    "`code",
    "[link](http",
    "| a |",
    "```\ncode",
    "snake_case_name",
    "2 * 3 * 4",
  ]) {
    expect(
      html(text)
        .replace(/<[^>]+>/g, "")
        .replaceAll("\n", ""),
      text,
    ).toBe(text.replace(/^```\n/, ""));
  }
});

test("links leave nothing behind, and dangerous ones are text", () => {
  expect(html("[a](https://example.org/x_(y))")).toContain(
    '<a href="https://example.org/x_(y)" target="_blank" rel="noopener noreferrer nofollow">a</a>',
  );
  for (const address of [
    "javascript:alert(1)",
    "JAVASCRIPT:x",
    " java\nscript:x",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc",
    "blob:x",
    "/v1/streams",
    "//evil.example",
  ]) {
    expect(html(`[a](${address})`), address).not.toContain("<a ");
    expect(safeLink(address), address).toBeUndefined();
  }
  expect(html("<script>alert(1)</script><img src=x onerror=alert(1)>")).not.toMatch(
    /<(script|img)/,
  );
});

test("only pictures that bring their own bytes are shown, and no drawings", () => {
  expect(safePicture("data:image/png;base64,aGk=")).toBeDefined();
  for (const url of [
    "https://example.org/a.png",
    "data:image/svg+xml;base64,PHN2Zy8+",
    "data:image/png,<svg>",
    "data:text/html;base64,aGk=",
  ]) {
    expect(safePicture(url)).toBeUndefined();
  }
  expect(safeMedia("data:audio/ogg;base64,aGk=")).toBeDefined();
  expect(safeMedia("data:text/html;base64,aGk=")).toBeUndefined();
});

// A parser that tries all alternatives would not finish.
test("long and odd texts are read once", () => {
  for (const text of [
    "*".repeat(5000),
    "[".repeat(5000),
    "`".repeat(5000),
    "_a ".repeat(5000),
    "|".repeat(5000),
    `${"> ".repeat(200)}x`,
  ])
    html(text);
});
