// Renders a value of any form as text of bounded length.

/** The longest text, in characters. */
const LONGEST = 20_000;
/**
 * The longest text that is indented, because indentation of deep nesting is not linear in the
 * length.
 */
const PRETTY = 2_000;

/** A JSON value as text. */
export function raw(value: unknown): string {
  if (typeof value === "string") return clipped(value);
  try {
    const text = JSON.stringify(value) ?? String(value);
    return clipped(text.length > PRETTY ? text : (JSON.stringify(value, null, 2) ?? text));
  } catch {
    // Deeply nested JSON can be parsed without a stack, but not serialised.
    return "It is nested too deeply to be shown. The raw frames hold it.";
  }
}

/** The type of an event, if it has one. */
export function typeOf(event: unknown): string | undefined {
  const type = (event as { type?: unknown } | null | undefined)?.type;
  return typeof type === "string" && type !== "" ? type.slice(0, 60) : undefined;
}

function clipped(text: string): string {
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}
