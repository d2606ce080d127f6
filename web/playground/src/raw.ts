// What cannot be shown otherwise, as text: total, and of bounded length, whatever came over the
// line.

/** More than a person reads. */
const LONGEST = 20_000;
/**
 * Beyond this it is not indented: an indent grows with the depth, so that its cost is not linear.
 */
const PRETTY = 2_000;

/** A JSON value as text. */
export function raw(value: unknown): string {
  if (typeof value === "string") return clipped(value);
  try {
    const text = JSON.stringify(value) ?? String(value);
    return clipped(text.length > PRETTY ? text : (JSON.stringify(value, null, 2) ?? text));
  } catch {
    // Text that nests very deeply is read without a stack, but not written.
    return "It is nested too deeply to be shown. The raw frames hold it.";
  }
}

/** The type that an event names, as far as it does. */
export function typeOf(event: unknown): string | undefined {
  const type = (event as { type?: unknown } | null | undefined)?.type;
  return typeof type === "string" && type !== "" ? type.slice(0, 60) : undefined;
}

function clipped(text: string): string {
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}
