// Commands for a shell. They contain no key: the shell inserts it.
import { isObject } from "../../json.js";
import type { RunRow } from "../generated/answers.js";

const KEY = '-H "Authorization: Bearer $CAPSTAN_KEY"';

/** Quotes any text as one argument for a POSIX shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Follows the stream from its first packet. */
export function attachCurl(origin: string, id: string): string {
  return `curl -N ${KEY} ${quoted(`${origin}/v1/streams/${id}`)}`;
}

/** Downloads the frames into a file for `capstan replay`. */
export function downloadCurl(origin: string, id: string): string {
  return `curl -o ${id}.sse ${KEY} ${quoted(`${origin}/v1/console/runs/${id}/frames`)}`;
}

export function tailCommand(origin: string, id: string): string {
  return `capstan tail --url ${quoted(origin)} ${id}`;
}

/** The routes that start such runs, and the member with the run's key. */
const STARTS: Readonly<
  Record<
    string,
    { path: string; name: (body: Record<string, unknown>, id: string) => Record<string, unknown> }
  >
> = {
  cap: { path: "assist", name: (body, id) => ({ ...body, request_id: id }) },
  "cap-v2": { path: "assist", name: (body, id) => ({ ...body, request_id: id }) },
  "ag-ui": { path: "ag-ui", name: (body, id) => ({ ...body, runId: id }) },
};

/**
 * Sends the same request as a new run. Undefined for faces whose requests have no key, or for a
 * body that cannot be read.
 */
export function againCurl(
  origin: string,
  { face, agent }: Pick<RunRow, "face" | "agent">,
  body: string,
  freshId: string,
): string | undefined {
  const start = STARTS[face];
  const request = parsed(body);
  if (!start || !request) return undefined;
  const url = `${origin}/v1/agents/${encodeURIComponent(agent)}/${start.path}`;
  const data = quoted(JSON.stringify(start.name(request, freshId)));
  return `curl -N ${KEY} -H 'Content-Type: application/json' --data ${data} ${quoted(url)}`;
}

function parsed(body: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
