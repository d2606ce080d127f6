// What `/v1/console` answers. Times are RFC 3339; what may be missing may be null as well.

export const STATES = ["running", "waiting", "failed", "stopped", "done", "healed"] as const;
export type State = (typeof STATES)[number];

type Maybe<T> = T | null | undefined;

export interface Me {
  who: "tenant" | "operator" | "local";
  name: string;
  tenants: readonly string[];
  may: readonly ("look" | "content" | "act")[];
  /** Whether content is there at once, after a click, or not at all. */
  content: "never" | "asked" | "shown";
  actions: boolean;
  trace_url?: Maybe<string>;
  logs_url?: Maybe<string>;
  version: string;
  replicas: boolean;
}

export interface Health {
  state: "ready" | "draining" | "journal_broken";
  running: number;
  waiting: number;
  responses: number;
  append_p95_ms?: Maybe<number>;
  faults_5m: number;
  version: string;
  uptime_seconds: number;
  replica?: Maybe<{ name: string; n: number; of: number }>;
}

/** A run as a list shows it. */
export interface Row {
  stream_id: string;
  tenant: string;
  agent: string;
  face: string;
  session?: Maybe<string>;
  key: string;
  state: State;
  created_at: string;
  updated_at: string;
  closed_at?: Maybe<string>;
  first_packet_ms?: Maybe<number>;
  duration_ms: number;
  packets: number;
  bytes: number;
  tokens: number;
  fault?: Maybe<string>;
  fault_title?: Maybe<string>;
  attempts: readonly { n: number; fault?: Maybe<string> }[];
  last_packet_at?: Maybe<string>;
  model?: Maybe<string>;
  owner?: Maybe<string>;
}

export interface RunPage {
  runs: readonly Row[];
  next?: Maybe<string>;
  looked_back_to?: Maybe<string>;
  complete: boolean;
}

export interface Overview {
  attention: readonly {
    run: Row;
    why: "silent" | "overdue" | "retrying" | "lease_over";
    sentence: string;
  }[];
  faults: readonly { code: string; title?: Maybe<string>; agent: string; count: number }[];
}

export interface Refusal {
  at: string;
  request_id: string;
  tenant?: Maybe<string>;
  route: string;
  code: string;
  title: string;
  why?: Maybe<string>;
  /** Seconds, if the refusal told some. */
  retry_after?: Maybe<number>;
  status: number;
  ms: number;
}

export interface Hit {
  kind: "stream" | "cursor" | "key" | "request_id" | "session" | "trace";
  stream_id?: Maybe<string>;
  tenant?: Maybe<string>;
  session?: Maybe<string>;
  seq?: Maybe<number>;
}

export interface Found {
  hits: readonly Hit[];
  refusals: readonly Refusal[];
  looked: readonly { where: string; back_to?: Maybe<string> }[];
}

/** One line of the ledger. */
export interface Attempt {
  n: number;
  /** Nothing if a crash came before it was noted. */
  began_at?: Maybe<string>;
  first_packet_at?: Maybe<string>;
  ended_at?: Maybe<string>;
  from_seq?: Maybe<number>;
  to_seq?: Maybe<number>;
  fault?: Maybe<string>;
  fault_title?: Maybe<string>;
  severity?: Maybe<string>;
  fault_seq?: Maybe<number>;
  retry_after?: Maybe<number>;
  reset_to?: Maybe<number>;
  swallowed_bytes?: Maybe<number>;
  calls?: Maybe<number>;
  members?: Maybe<readonly { name: string; calls?: Maybe<number>; fault?: Maybe<string> }[]>;
  usage?: Maybe<Usage>;
  request_id?: Maybe<string>;
  trace_id?: Maybe<string>;
}

export type Usage = Readonly<Record<string, unknown>>;

/** Of a code that only its agent knows there is no more than the code. */
export interface RunFault {
  code: string;
  title?: Maybe<string>;
  severity?: Maybe<string>;
  domain?: Maybe<string>;
  meaning?: Maybe<string>;
  remedy?: Maybe<string>;
  status?: Maybe<number>;
  agui_code?: Maybe<string>;
  retry_after?: Maybe<number>;
  details?: unknown;
  others_last_hour: number;
}

export interface Viewer {
  joined_at: string;
  left_at?: Maybe<string>;
  ended?: Maybe<"done" | "left" | "cut" | "stalled">;
  cursor_at_start: number;
  cursor?: Maybe<number>;
}

export interface RunDetail {
  row: Row;
  sentence: string;
  attempts: readonly Attempt[];
  fault?: Maybe<RunFault>;
  request_id?: Maybe<string>;
  trace_id?: Maybe<string>;
  max_attempts: number;
  not_before?: Maybe<string>;
  reason?: Maybe<string>;
  usage?: Maybe<Usage>;
  viewers?: Maybe<readonly Viewer[]>;
  viewers_sum?: Maybe<{
    joined: number;
    resumed: number;
    cut: number;
    stalled: number;
    last_cursor?: Maybe<number>;
  }>;
  may: { content: boolean; act: boolean };
}

/** seq, milliseconds since the run was created, op, type of an event, bytes. */
export type Mark = readonly [
  seq: number,
  t: number,
  op: string,
  type: string | null,
  bytes: number,
];

export interface Marks {
  marks: readonly Mark[];
  complete: boolean;
  read_to: number;
  sampled: boolean;
}

export interface SessionTurn {
  stream_id: string;
  messages: readonly { role: string; content?: unknown }[];
  partial?: boolean;
}

export interface Session {
  turns: readonly SessionTurn[];
  runs: readonly Row[];
  usage?: Maybe<Usage>;
  next?: Maybe<number | string>;
}

export interface FaultCell {
  code: string;
  title?: Maybe<string>;
  agent: string;
  fatal: number;
  /** Failed attempts after which the run went on, however it ended: not runs that are `healed`. */
  healed: number;
  refused: number;
}

export interface Faults {
  from: string;
  to: string;
  step_seconds: number;
  cells: readonly FaultCell[];
  /** Steps without a fault are left out. */
  series: readonly { at: string; fatal: number; healed: number; refused: number }[];
  runs_total: number;
}

export interface Agent {
  name: string;
  kind: string;
  provider?: Maybe<string>;
  model?: Maybe<string>;
  host?: Maybe<string>;
  key_set?: Maybe<boolean>;
  max_attempts: number;
  timeouts?: Maybe<Readonly<Record<string, unknown>>>;
  running: number;
  waiting: number;
  outcomes: { done: number; healed: number; failed: number; stopped: number };
  first_packet_ms?: Maybe<{ p50?: Maybe<number>; p95?: Maybe<number> }>;
  /** Of the last hour. */
  first_packet_ms_lately?: Maybe<{ p50?: Maybe<number>; p95?: Maybe<number> }>;
  attempts_per_run?: Maybe<number>;
  calls_per_attempt?: Maybe<number>;
  last_success_at?: Maybe<string>;
  last_fault?: Maybe<{ code: string; at: string }>;
  members?: Maybe<readonly { name: string; breaker?: Maybe<string> }[]>;
}

export interface Use {
  used: number;
  limit?: Maybe<number>;
}

export interface Tenant {
  name: string;
  runs?: Maybe<Use>;
  responses?: Maybe<Use>;
  requests_per_minute?: Maybe<Use>;
  sessions?: Maybe<Use>;
  bytes?: Maybe<Use>;
  tokens_today?: Maybe<Use>;
  retention?: Maybe<{ max_age_seconds?: Maybe<number>; max_bytes?: Maybe<number> }>;
  no_store: boolean;
  refusals?: Maybe<Readonly<Record<string, number>>>;
}

export interface Replica {
  id: string;
  name: string;
  url?: Maybe<string>;
  version: string;
  state: "live" | "draining" | "gone";
  is_self: boolean;
  age_seconds: number;
  silent_seconds: number;
  runs: number;
  /** Not told by older builds. */
  responses?: Maybe<number>;
  append_p95_ms?: Maybe<number>;
}

/** What the feed tells. */
export type FeedEvent =
  | { type: "run"; what: string; run: Row }
  | { type: "refused"; refusal: Refusal }
  | { type: "state"; health: Partial<Health> }
  | { type: "lagged" };
