// The console's API, typed. The key is only in request headers. A failure is an error, never an
// empty list.
import { authorization } from "../../authorization.js";
import type {
  AgentDetails,
  Conversation,
  FaultTable,
  Findings,
  Health,
  ListedReplica,
  Marks,
  Me,
  Overview,
  RunDetails,
  RunRows,
  TenantDetails,
} from "../generated/answers.js";

export type Face = "cap" | "cap-v2" | "ag-ui";

/** The gateway's refusal. */
export class Refused extends Error {
  override readonly name = "Refused";

  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly requestId: string | undefined,
  ) {
    super(message);
  }
}

/** The parameters of a query. Undefined ones are not sent. */
export type Query = Readonly<Record<string, string | number | undefined>>;

export class Api {
  constructor(
    readonly key: string,
    readonly base = "/v1/console",
  ) {}

  readonly me = (signal?: AbortSignal) => this.#json<Me>("/me", {}, signal);
  readonly health = (signal?: AbortSignal) => this.#json<Health>("/health", {}, signal);
  readonly overview = (signal?: AbortSignal) => this.#json<Overview>("/overview", {}, signal);
  readonly runs = (query: Query, signal?: AbortSignal) =>
    this.#json<RunRows>("/runs", query, signal);
  readonly find = (q: string, signal?: AbortSignal) => this.#json<Findings>("/find", { q }, signal);
  readonly run = (id: string, signal?: AbortSignal) =>
    this.#json<RunDetails>(`/runs/${id}`, {}, signal);
  readonly marks = (id: string, query: Query, signal?: AbortSignal) =>
    this.#json<Marks>(`/runs/${id}/marks`, query, signal);
  readonly faults = (query: Query, signal?: AbortSignal) =>
    this.#json<FaultTable>("/faults", query, signal);
  readonly agents = (signal?: AbortSignal) =>
    this.#json<{ agents: readonly AgentDetails[] }>("/agents", {}, signal);
  readonly tenants = (signal?: AbortSignal) =>
    this.#json<{ tenants: readonly TenantDetails[] }>("/tenants", {}, signal);
  readonly replicas = (signal?: AbortSignal) =>
    this.#json<{ replicas: readonly ListedReplica[] }>("/replicas", {}, signal);
  readonly session = (tenant: string, session: string, query: Query, signal?: AbortSignal) =>
    this.#json<Conversation>(sessionPath(tenant, session), query, signal);
  readonly body = (id: string, signal?: AbortSignal) =>
    this.#ask(`/runs/${id}/body`, {}, { signal }).then((response) => response.text());
  readonly frames = (id: string, query: Query, signal?: AbortSignal) =>
    this.#ask(`/runs/${id}/frames`, query, { signal });
  readonly events = (signal: AbortSignal) => this.#ask("/events", {}, { signal });
  /** Resolves when CLOSE is in the journal. */
  readonly stop = (id: string) => this.#ask(`/runs/${id}/stop`, {}, { method: "POST" });
  readonly purge = (id: string) => this.#ask(`/runs/${id}`, {}, { method: "DELETE" });
  readonly purgeSession = (tenant: string, session: string) =>
    this.#ask(sessionPath(tenant, session), {}, { method: "DELETE" });

  async #json<T>(path: string, query: Query, signal?: AbortSignal): Promise<T> {
    const response = await this.#ask(path, query, { signal });
    return (await response.json()) as T;
  }

  async #ask(
    path: string,
    query: Query,
    init: { method?: string; signal?: AbortSignal | undefined },
  ): Promise<Response> {
    const { method = "GET", signal } = init;
    const response = await fetch(`${this.base}${path}${search(query)}`, {
      method,
      signal: signal ?? null,
      headers: authorization(this.key),
    });
    if (!response.ok) throw await refused(response);
    return response;
  }
}

/** `?a=1&b=2` without undefined members; empty if there are none. */
export function search(query: Query): string {
  const set = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  return set.length === 0
    ? ""
    : `?${new URLSearchParams(set.map(([name, value]) => [name, String(value)]))}`;
}

function sessionPath(tenant: string, session: string): string {
  return `/sessions/${encodeURIComponent(tenant)}/${encodeURIComponent(session)}`;
}

async function refused(response: Response): Promise<Refused> {
  const problem = (await response.json().catch(() => ({}))) as {
    kind?: string;
    code?: string;
    title?: string;
    detail?: string;
    request_id?: string;
  };
  const message =
    problem.detail || problem.title || `The gateway answered with status ${response.status}.`;
  return new Refused(
    response.status,
    problem.kind ?? problem.code ?? String(response.status),
    message,
    problem.request_id,
  );
}
