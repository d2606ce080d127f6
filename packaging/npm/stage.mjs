// stage.mjs FOLDER: the client package as it is published. It asks for the binaries, which nobody
// needs to work on it.
import { readFileSync, writeFileSync } from "node:fs";

const file = `${process.argv[2]}/package.json`;
const source = JSON.parse(readFileSync(file, "utf8"));
const { private: _, devDependencies: __, scripts: ___, ...manifest } = source;
manifest.repository = "github:capstan-run/capstan";
manifest.optionalDependencies = { "capstan-linux-x64": manifest.version };
writeFileSync(file, `${JSON.stringify(manifest, null, 2)}\n`);
