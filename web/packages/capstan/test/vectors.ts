// The vectors that all languages share, and the `capstan` binary.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = new URL("../../../../", import.meta.url);

/** A file of `vectors/`, a JSON value per line. Split on LF only: some lines hold U+2028. */
export function vectors<T>(file: string): T[] {
  const text = readFileSync(new URL(`vectors/${file}`, root), "utf8");
  return text
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as T);
}

/** Runs the binary. */
export function capstan(...args: string[]): string {
  const binary = process.env["CAPSTAN_BIN"] ?? fileURLToPath(new URL("target/debug/capstan", root));
  return execFileSync(binary, args, { encoding: "utf8" });
}
