// How often and how long: the numbers of a call. Times are milliseconds.

/** No wait is shorter, whatever a server asks for: a client must not hammer. */
const LEAST_WAIT = 100;

/** How packets are spelled. */
export type Profile = "v1" | "v2";

/** Waits that double. */
export interface Backoff {
  /** The first. */
  first: number;
  /** The longest. */
  max: number;
  /** Spread each wait over its upper half, so that a thousand clients do not come back as one. */
  jitter: boolean;
}

/** What a call puts up with. */
export interface Policy {
  /** Interruptions since the last new packet; also TRANSIENT errors in one call. */
  maxRetries: number;
  /**
   * The longest wait that is slept through. A longer one fails at once, so that a UI can count
   * down.
   */
  maxWait: number;
  /**
   * While resuming, go on beyond `maxRetries` until nothing new came for this long: a deploy takes
   * its time.
   */
  resumePatience: number;
  /**
   * The longest that the whole call may take, from its first poll on; no limit if it is not there.
   */
  deadline: number | undefined;
  /** The waits between tries. */
  backoff: Backoff;
  /** A gap in seq is an error rather than a notice. */
  isStrict: boolean;
  /** How packets are spelled. */
  profile: Profile;
  /** The call watches a run that another client started: 204 means that it is over. */
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

/** What a caller may set of it. Times are milliseconds. */
export interface HealingOptions {
  /** Interruptions since the last new packet that are healed; 3. */
  maxRetries?: number;
  /**
   * The longest wait that is slept through; 30 s. A longer `retry_after` fails at once and says so.
   */
  maxWait?: number;
  /** While resuming, go on beyond `maxRetries` until nothing new came for this long; off. */
  resumePatience?: number;
  /** The longest that a whole call may take, however lively it is; off. */
  deadline?: number;
  /** The waits between tries; 0.5 s doubling to 30 s, with jitter. */
  backoff?: Partial<Backoff>;
}

/** The defaults, overlaid by what a caller has set. */
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

/** The wait before the try that follows `step` others. */
export function delay(backoff: Backoff, step: number, random: () => number): number {
  const whole = Math.min(backoff.first * 2 ** step, backoff.max);
  return Math.max(backoff.jitter ? whole * (0.5 + random() / 2) : whole, LEAST_WAIT);
}

/** A server's wait within bounds. */
export function clampWait(policy: Policy, wait: number): number {
  return Math.min(Math.max(wait, LEAST_WAIT), Math.max(policy.maxWait, LEAST_WAIT));
}
