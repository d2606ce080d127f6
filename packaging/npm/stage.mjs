// stage.mjs FOLDER: the client package as it is published. It asks for the binaries, which nobody needs to work on it.
import { readFileSync, writeFileSync } from "node:fs";

const file = `${process.argv[2]}/package.json`;
const { private: _, devDependencies: __, scripts: ___, ...manifest } = JSON.parse(readFileSync(file, "utf8"));
manifest.repository = "github:capstan-run/capstan";
manifest.optionalDependencies = { "capstan-linux-x64": manifest.version };
writeFileSync(file, `${JSON.stringify(manifest, null, 2)}\n`);
