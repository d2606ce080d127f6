// The members of a request that docs/agents.md names are those of the published SDKs' types. A new
// member of an SDK fails here by its name, and so does a row of a member that no SDK has.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";

import ts from "typescript";

const here = dirname(fileURLToPath(import.meta.url));
const page = readFileSync(join(here, "../../../../docs/agents.md"), "utf8");

/** The members of each protocol's requests: where the page has them, and the SDK's types. */
const protocols = [
  {
    title: "Chat Completions",
    types: [["openai/resources/chat/completions/completions", "ChatCompletionCreateParamsBase"]],
    // Why a row stands for no member of the SDK.
    ours: {},
    // Why a member of the SDK needs no row.
    theirs: {},
  },
  {
    title: "Responses",
    types: [
      ["openai/resources/responses/responses", "ResponseCreateParamsBase"],
      ["openai/resources/beta/responses/responses", "ResponseCreateParamsBase"],
    ],
    ours: {
      n: "a member of chats that clients send by mistake: it is refused by name",
      openai_beta: "the header openai-beta, in the stored body",
    },
    theirs: { betas: "the SDK sends it as the header openai-beta" },
  },
  {
    title: "Messages",
    types: [
      ["@anthropic-ai/sdk/resources/messages/messages", "MessageCreateParamsBase"],
      ["@anthropic-ai/sdk/resources/beta/messages/messages", "MessageCreateParamsBase"],
    ],
    ours: {
      anthropic_beta: "the header, as a member of requests to other clouds",
      anthropic_version: "the header, as a member of requests to other clouds",
      temperature: "the newest models refuse it, and the SDK no longer has it",
      top_k: "the newest models refuse it, and the SDK no longer has it",
      top_p: "the newest models refuse it, and the SDK no longer has it",
    },
    theirs: { betas: "the SDK sends it as the header anthropic-beta" },
  },
];

/** The names in the first column of a table of the page. */
function rowsOf(title) {
  const [, section] = page.split(`### A request of ${title}\n`);
  const table = section.split("\n### ")[0].split("<!-- members:end -->")[0];
  return [...table.matchAll(/^\| `([^`]+)` \|/gm)].map((row) => row[1]);
}

/** The names of all members of a published type, with those that it inherits. */
function membersOf([path, name]) {
  const declaration = createRequire(import.meta.url).resolve(path).replace(/\.m?js$/, ".d.ts");
  const program = ts.createProgram([declaration], { noLib: true, skipLibCheck: true });
  const checker = program.getTypeChecker();
  const module = checker.getSymbolAtLocation(program.getSourceFile(declaration));
  const type = checker.getExportsOfModule(module).find((symbol) => symbol.name === name);
  assert.ok(type, `${path} has no type ${name}`);
  return checker.getDeclaredTypeOfSymbol(type).getProperties().map((member) => member.name);
}

describe("the table of members", () => {
  for (const { title, types, ours, theirs } of protocols) {
    test(`has those of ${title}`, () => {
      const published = new Set(types.flatMap(membersOf));
      const rows = rowsOf(title);
      const missing = [...published].filter((name) => !(rows.includes(name) || name in theirs));
      const unknown = rows.filter((name) => !(published.has(name) || name in ours));
      assert.deepEqual({ missing, unknown }, { missing: [], unknown: [] });
      const explained = [...Object.keys(ours)].filter((name) => published.has(name));
      assert.deepEqual(explained, [], "the SDK has them now");
    });
  }
});
