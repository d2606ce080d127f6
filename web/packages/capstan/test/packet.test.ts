// The decoder gives the verdicts of the shared vectors.
import { expect, test } from "vitest";

import { decodePacket, decodePacketV2 } from "../src/packet.js";
import { vectors } from "./vectors.js";

interface Case {
  id: string;
  profile: "v1" | "v2";
  model: string;
  input: { seq?: number };
  accept: boolean;
  why: string;
  lax?: boolean;
  tags?: string[];
}

const isFirm = ({ model, lax, tags = [] }: Case) =>
  model === "StreamPacket" &&
  !lax &&
  !tags.some((tag) => tag.startsWith("quirk:") || tag === "bigint");
const cases = vectors<Case>("cap/models.jsonl").filter(isFirm);

test("packets of both profiles get the verdicts of the vectors", () => {
  const wrong = cases.filter((c) => accepts(c) !== expected(c)).map((c) => `${c.id}: ${c.why}`);
  expect(cases.length).toBeGreaterThan(200);
  expect(wrong).toEqual([]);
});

test("a mistake names its place", () => {
  const packet = {
    stream_id: "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    seq: 1,
    op: "ERROR",
    t: "2026-02-03T10:15:37Z",
  };
  expect(() => decodePacket(JSON.stringify({ ...packet, p: "boom" }))).toThrow(
    /^p: expected a StreamError object/,
  );
  const p = { code: "timeout", message: "m", severity: "fatal" };
  expect(() => decodePacket(JSON.stringify({ ...packet, p }))).toThrow(
    /^p\.severity: expected FATAL/,
  );
  expect(() => decodePacket("{")).toThrow("document: not JSON");
});

function accepts({ profile, input }: Case): boolean {
  try {
    (profile === "v1" ? decodePacket : decodePacketV2)(JSON.stringify(input));
    return true;
  } catch {
    return false;
  }
}

/**
 * The contract allows some differences: the client is stricter for a negative seq or one past 2^53,
 * and more lenient for a v2 close without p.
 */
function expected({ profile, input, accept }: Case): boolean {
  const { op, p, seq } = (input ?? {}) as { op?: string; p?: unknown; seq?: number };
  if (profile === "v1" && typeof seq === "number" && (seq < 0 || seq > Number.MAX_SAFE_INTEGER))
    return false;
  if (profile === "v2" && (op === "close" || op === "event") && p === undefined) return true;
  return accept;
}
