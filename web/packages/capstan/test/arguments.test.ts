// Invalid arguments are refused by name before the first request. A key is never repeated.
import { expect, test } from "vitest";

import { CapClient, type Options } from "../src/client.js";
import { resumableFetch } from "../src/resumable-fetch.js";

const SECRET = "sk_se\ncret";
const URL = "http://localhost:1";

test.each([
  { maxRetries: -1 },
  { maxRetries: "3" },
  { maxWait: Number.NaN },
  { resumePatience: -1 },
  { deadline: 0 },
  { readTimeout: null },
  { askTimeout: -5 },
])("%o is refused by its name", (options) => {
  const [name] = Object.keys(options);
  expect(() => new CapClient(URL, "", options as Options)).toThrow(
    new RegExp(`^${name}: expected a number from [01] on$`),
  );
  expect(() => resumableFetch(options as Options)).toThrow(`${name}: expected a number`);
});

test("what means no limit is one", () => {
  expect(
    () =>
      new CapClient(URL, "", {
        maxRetries: Number.POSITIVE_INFINITY,
        maxWait: 0,
        readTimeout: Number.POSITIVE_INFINITY,
      }),
  ).not.toThrow();
});

test("a key that no header can carry is refused at once, and not shown", async () => {
  const refused = /^key or headers: a character that no header can carry/;
  for (const key of [SECRET, "ключ"]) expect(() => new CapClient(URL, key)).toThrow(refused);
  expect(() => new CapClient(URL, "", { headers: { "x-key": SECRET } })).toThrow(refused);
  await expect(
    resumableFetch()(URL, { headers: { authorization: `Bearer ${SECRET}` } }),
  ).rejects.toThrow(refused);
});
