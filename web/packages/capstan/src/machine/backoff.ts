// The retry policy of a call. Times are milliseconds.

/** The shortest wait, whatever the server asks for. */
const LEAST_WAIT = 100;

/** The profile of packets. */
export type Profile = "v1" | "v2";

/** Waits that double. */
export interface Backoff {
  /** The first wait. */
  first: number;
  /** The longest wait. */
  max: number;
  /** Spreads each wait over its upper half, so that a thousand clients do not come back at once. */
  jitter: boolean;
}

/** The retry policy of a call. */
export interface Policy {
  /** The most interruptions since the last new packet, and the most TRANSIENT errors of a call. */
  maxRetries: number;
  /**
   * The longest wait that the client waits itself. A longer one fails at once, so that a UI can
   * count down.
   */
  maxWait: number;
  /**
   * While resuming, continue beyond `maxRetries` until nothing new came for this long: a deploy
   * takes its time.
   */
  resumePatience: number;
  /** The longest duration of a call, from its first poll; undefined for no limit. */
  deadline: number | undefined;
  /** The waits between retries. */
  backoff: Backoff;
  /** A gap in seq is an error, not a notice. */
  isStrict: boolean;
  /** The profile of packets. */
  profile: Profile;
  /** The call watches another client's run: 204 means that it has ended. */
  isViewer: boolean;
}

export const DEFAULT_POLICY: Policy = {
  maxRetries: 3,
  maxWait: 30_000,
  resumePatience: 0,
  deadline: undefined,
  backoff: { first: 500, max: 30_000, jitter: true },
  isStrict: false,
  profile: "v1",
  isViewer: false,
};

/** The retry options of a caller. Times are milliseconds. */
export interface HealingOptions {
  /** The most interruptions since the last new packet; 3. */
  maxRetries?: number;
  /**
   * The longest wait that the client waits itself; 30 s. A longer `retry_after` fails at once and
   * reports it.
   */
  maxWait?: number;
  /** While resuming, continue beyond `maxRetries` until nothing new came for this long; off. */
  resumePatience?: number;
  /** The longest duration of a call, even if packets arrive; off. */
  deadline?: number;
  /** The waits between retries; 0.5 s doubling to 30 s, with jitter. */
  backoff?: Partial<Backoff>;
}

/** The defaults, overridden by the caller's options. */
export function policyOf({
  maxRetries,
  maxWait,
  resumePatience,
  deadline,
  backoff,
}: HealingOptions): Policy {
  const set = Object.entries({ maxRetries, maxWait, resumePatience, deadline }).filter(
    ([, value]) => value !== undefined,
  );
  return {
    ...DEFAULT_POLICY,
    ...Object.fromEntries(set),
    backoff: { ...DEFAULT_POLICY.backoff, ...backoff },
  };
}

/** The wait before a retry after `step` earlier ones. */
export function delay(backoff: Backoff, step: number, random: () => number): number {
  const whole = Math.min(backoff.first * 2 ** step, backoff.max);
  return Math.max(backoff.jitter ? whole * (0.5 + random() / 2) : whole, LEAST_WAIT);
}

/** A server's wait, within bounds. */
export function clampWait(policy: Policy, wait: number): number {
  return Math.min(Math.max(wait, LEAST_WAIT), Math.max(policy.maxWait, LEAST_WAIT));
}
