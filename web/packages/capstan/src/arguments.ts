// Checks arguments before the first request. Errors name the argument, and never contain a key.

/** Numeric options, with their smallest values. */
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

/** Platforms repeat an invalid header in their error, and it may contain a key. */
export function checkHeaders(headers: HeadersInit | undefined): void {
  try {
    new Headers(headers);
  } catch {
    throw new TypeError(
      "key or headers: a character that no header can carry, such as a line break; try key.trim()",
    );
  }
}
