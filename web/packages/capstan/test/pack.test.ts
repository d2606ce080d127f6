// The package from `npm pack`, installed as users do: in a separate folder, with React and without
// sonner.
import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { afterAll, beforeAll, expect, test } from "vitest";

const source = fileURLToPath(new URL("..", import.meta.url));
const modules = fileURLToPath(new URL("../../../node_modules/", import.meta.url));
const project = mkdtempSync(join(tmpdir(), "capstan-pack-"));
const installed = join(project, "node_modules/capstan");

const run = (command: string, ...args: string[]) =>
  execFileSync(command, args, {
    cwd: project,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  });

beforeAll(() => {
  // As in a fresh clone, nothing is built yet.
  rmSync(join(source, "dist"), { recursive: true, force: true });
  execFileSync("npm", ["pack", "--silent", "--pack-destination", project], {
    cwd: source,
    stdio: "ignore",
  });
  mkdirSync(installed, { recursive: true });
  run("tar", "-xzf", "capstan-0.1.0.tgz", "--strip-components=1", "-C", installed);
  mkdirSync(join(project, "node_modules/@types"));
  for (const name of [
    "react",
    "react-dom",
    "scheduler",
    "@types/react",
    "@types/react-dom",
    "csstype",
  ]) {
    if (existsSync(join(modules, name)))
      symlinkSync(join(modules, name), join(project, "node_modules", name));
  }
  writeFileSync(join(project, "package.json"), "{}");
}, 120_000);
afterAll(() => rmSync(project, { recursive: true }));

test("the package holds what was built, its maps, its types and its licence", () => {
  const manifest = JSON.parse(readFileSync(join(installed, "package.json"), "utf8")) as {
    exports: Record<string, Record<string, Record<string, string>>>;
  };
  const files = Object.values(manifest.exports).flatMap((entry) =>
    typeof entry === "string"
      ? [entry]
      : Object.values(entry).flatMap((paths) => Object.values(paths)),
  );
  expect(files).toHaveLength(6 * 4 + 1);
  for (const file of files) expect(existsSync(join(installed, file)), file).toBe(true);
  for (const file of ["LICENSE", "README.md"])
    expect(readFileSync(join(installed, file), "utf8").length, file).toBeGreaterThan(1_000);
  const map = JSON.parse(readFileSync(join(installed, "dist/index.js.map"), "utf8")) as {
    sources: string[];
    sourcesContent: string[];
  };
  expect(map.sources.some((path) => path.endsWith("src/client.ts"))).toBe(true);
  expect(map.sourcesContent.join("")).toContain("class CapClient");
});

// npm would link a folder, which contains no build.
test("the documents install what is packed", () => {
  const page = readFileSync(join(source, "../../../docs/client.md"), "utf8");
  expect(page).toContain(
    'npm install "$(npm pack --silent ../capstan/web/packages/capstan | tail -1)"',
  );
  expect(page).not.toMatch(/npm install \.\.\//);
});

test("the React parts are client code, and load sonner for a toast only", () => {
  for (const file of ["index.js", "index.cjs"]) {
    const text = readFileSync(join(installed, "dist/react", file), "utf8");
    expect(text.startsWith('"use client";'), file).toBe(true);
    expect(text, file).not.toMatch(/from "sonner"|require\("sonner"\)/);
  }
});

const USE = `
const page = (notify) => function Page() {
  const { handleError, error } = useAGUIErrorHandler({ notify });
  React.useMemo(() => handleError({ code: "TIMEOUT", message: "Late.", http_status: 504 }), []);
  return null;
};
const told = [];
renderToString(React.createElement(page((notification) => told.push(notification))));
const error = new CapClient("http://localhost").question("c", "hi");
const types = [typeof FAULT_HELP.timeout.remedy, typeof error.request_id];
console.log(JSON.stringify([told[0].title, isRetryableError("TIMEOUT"), ...types]));
`;

test.each([
  ["a module", "use.mjs", (names: string, from: string) => `import ${names} from "${from}";\n`],
  [
    "CommonJS",
    "use.cjs",
    (names: string, from: string) => `const ${names} = require("${from}");\n`,
  ],
])("%s with a notify of its own needs no sonner", (_, file, load) => {
  const loads = [
    load("React", "react"),
    load("{ renderToString }", "react-dom/server"),
    load("{ CapClient }", "capstan"),
    load("{ isRetryableError }", "capstan/ag-ui-error-codes"),
    load("{ FAULT_HELP }", "capstan/fault-help"),
    load("{ useAGUIErrorHandler }", "capstan/react"),
  ];
  writeFileSync(join(project, file), loads.join("") + USE);
  expect(JSON.parse(run("node", file))).toEqual([
    "Request timed out. Please try again.",
    true,
    "string",
    "string",
  ]);
});

test("the types are found by modules and by CommonJS under node16", () => {
  const text = `
import { CapClient, type StreamPacket, AGUIErrorCode } from "capstan";
import { parseAGUIError } from "capstan/ag-ui-error-codes";
import { FAULT_HELP } from "capstan/fault-help";
import { useCapStream, type CapStreamState } from "capstan/react";
const client = new CapClient("http://localhost");
const packet: Promise<StreamPacket | undefined> = client.attach("x").next();
const status: number | undefined = parseAGUIError({})?.http_status;
const state: CapStreamState["status"] = useCapStream(client).state.status;
// @ts-expect-error a packet is not a number
const wrong: number = packet;
export const all = [packet, status, state, wrong, FAULT_HELP.timeout.remedy, AGUIErrorCode.TIMEOUT];
`;
  const files = ["types.cts", "types.mts"];
  for (const file of files) writeFileSync(join(project, file), text);
  compile(...files, "--module", "node16");
});

test("the examples of the README for useCapStream fit the types", () => {
  const readme = readFileSync(join(source, "README.md"), "utf8");
  const examples = [...readme.matchAll(/```tsx\n(.*?)```/gs)].map(([, example = ""]) => example);
  const complete = examples.filter((example) => example.includes("useCapStream("));
  expect(complete).toHaveLength(1);
  writeFileSync(join(project, "example.tsx"), complete[0] ?? "");
  compile(
    "example.tsx",
    "--jsx",
    "react-jsx",
    "--module",
    "esnext",
    "--moduleResolution",
    "bundler",
  );
});

/** Type-checks files as a user of the package does. */
function compile(...more: string[]): void {
  const options = [
    "--noEmit",
    "--strict",
    "--skipLibCheck",
    "--target",
    "es2022",
    "--lib",
    "es2022,dom,dom.iterable",
  ];
  try {
    run("node", join(modules, "typescript/bin/tsc"), ...options, ...more);
  } catch (error) {
    throw new Error((error as { stdout: string }).stdout);
  }
}
