// Checks arguments before anything is sent. Errors name the argument.
// Keys are never shown.

/** Numbers among the options, and the least that each may be. */
const LEAST = {
  maxRetries: 0,
  maxWait: 0,
  resumePatience: 0,
  deadline: 1,
  readTimeout: 1,
  askTimeout: 1,
};

export function checkOptions(options: { [name in keyof typeof LEAST]?: unknown }): void {
  for (const [name, least] of Object.entries(LEAST)) {
    const value = options[name as keyof typeof LEAST];
    if (value !== undefined && !(typeof value === "number" && value >= least))
      throw new TypeError(`${name}: expected a number from ${least} on`);
  }
}

/** Platforms repeat a header that cannot be sent in their complaint, and it may be a key. */
export function checkHeaders(headers: HeadersInit | undefined): void {
  try {
    new Headers(headers);
  } catch {
    throw new TypeError(
      "key or headers: a character that no header can carry, such as a line break; try key.trim()",
    );
  }
}
