// platform.mjs VERSION OS CPU: the package.json of the package that holds the binary for one
// platform.
const [version, os, cpu] = process.argv.slice(2);
const manifest = {
  name: `capstan-${os}-${cpu}`,
  version,
  description: `The capstan binary for ${os} on ${cpu}; install \`capstan\`, which brings it along`,
  license: "Apache-2.0",
  repository: "github:capstan-run/capstan",
  os: [os],
  cpu: [cpu],
  ...(os === "linux" && { libc: ["glibc"] }),
  files: ["bin"],
};
console.log(JSON.stringify(manifest, null, 2));
