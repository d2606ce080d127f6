// Cursors: `<stream_id>:<seq>`, `<stream_id>:<seq>.<k>`, or a bare `<stream_id>`.

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** The position of a reader. */
export interface Cursor {
  stream_id: string;
  /** The last packet received; `undefined` for a bare stream id. */
  seq: number | undefined;
  /** The event within the packet, in the AG-UI face. */
  part: number | undefined;
}

/** Parses a cursor; `undefined` if it is invalid. */
export function parseCursor(text: string): Cursor | undefined {
  const [, id = "", seq, part] = /^([^:]+)(?::(\d{1,19})(?:\.(\d{1,9}))?)?$/.exec(text) ?? [];
  if (!UUID.test(id)) return undefined;
  return { stream_id: id.toLowerCase(), seq: numberOr(seq), part: numberOr(part) };
}

/** Whether the text is a UUID in the form of the wire. */
export function isUuid(text: string): boolean {
  return UUID.test(text);
}

function numberOr(digits: string | undefined): number | undefined {
  return digits === undefined ? undefined : Number(digits);
}
