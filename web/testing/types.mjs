// Type-checks the package in the working directory, only if a file changed since the last success.
// Even an incremental `tsc` reads every imported file.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const web = fileURLToPath(new URL("..", import.meta.url));
const kept = join(web, "node_modules/.cache/types", basename(process.cwd()));

/** All files in web/ that a package may import, and the lock file for other packages. */
function state() {
  const hash = createHash("sha256").update(process.version);
  const visit = (/** @type {string} */ folder) => {
    for (const entry of readdirSync(folder, { withFileTypes: true }).sort((a, b) =>
      a.name < b.name ? -1 : 1,
    )) {
      const path = join(folder, entry.name);
      if (entry.isDirectory() && !["node_modules", "dist"].includes(entry.name)) visit(path);
      if (entry.isFile() && /\.([cm]?[jt]sx?|json|css)$/.test(entry.name))
        hash.update(`${path}\0`).update(readFileSync(path)).update("\0");
    }
  };
  visit(web);
  return hash.digest("hex");
}

/** @param {string} path */
function read(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

const now = state();
if (read(kept) !== now) {
  const { status } = spawnSync(process.execPath, [join(web, "node_modules/typescript/bin/tsc")], {
    stdio: "inherit",
  });
  if (status !== 0) process.exit(status ?? 1);
  mkdirSync(join(kept, ".."), { recursive: true });
  writeFileSync(kept, now);
}
