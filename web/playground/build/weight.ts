// Measures the size of a page's first load. The build fails above its budget.
import { gzipSync } from "node:zlib";

import type { Plugin } from "vite";

interface Budget {
  /** The name of the page in the build. */
  page: string;
  /** The folder of its own code. */
  own: string;
  /** The limit for everything that it loads at first, gzipped, in bytes. */
  first: number;
  /** The limit for its own part of that, in bytes. */
  ownMost: number;
}

interface Output {
  type: "chunk" | "asset";
  fileName: string;
  code?: string;
  source?: string | Uint8Array;
  imports?: string[];
  facadeModuleId?: string | null;
  moduleIds?: string[];
  viteMetadata?: { importedCss?: Set<string> } | undefined;
}

const size = (output: Output | undefined) =>
  gzipSync(output?.code ?? output?.source ?? "", { level: 9 }).length;

export function weigh({ page, own, first, ownMost }: Budget): Plugin {
  return {
    name: "weigh",
    apply: "build",
    enforce: "post",
    generateBundle(_, bundle) {
      const all = bundle as unknown as Record<string, Output>;
      const entry = Object.values(all).find(({ facadeModuleId }) =>
        facadeModuleId?.endsWith(`/${page}`),
      );
      if (!entry) return;
      const chunks = reached(all, entry.fileName);
      const styles = new Set(
        chunks.flatMap(({ viteMetadata }) => [...(viteMetadata?.importedCss ?? [])]),
      );
      const whole = sum([...chunks, ...[...styles].map((name) => all[name])].map(size));
      const mine = sum(
        chunks.filter(({ moduleIds = [] }) => moduleIds.some((id) => id.includes(own))).map(size),
      );
      const told = `${page}: ${whole} bytes gzipped at first, ${mine} of them its own code`;
      if (whole > first || mine > ownMost)
        this.error(`${told}; ${first} and ${ownMost} are the most`);
      console.log(told);
    },
  };
}

/** A chunk and all chunks that it imports statically. */
function reached(all: Record<string, Output>, name: string, seen = new Set<string>()): Output[] {
  const chunk = all[name];
  if (!chunk || seen.has(name)) return [];
  seen.add(name);
  return [chunk, ...(chunk.imports ?? []).flatMap((next) => reached(all, next, seen))];
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((all, number) => all + number, 0);
}
