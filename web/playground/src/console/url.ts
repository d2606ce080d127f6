// Maps the user's choices to addresses. Pure: the same address gives the same view in any tab.

export type View =
  | { view: "overview" }
  | { view: "find"; q: string }
  | { view: "runs" }
  | { view: "run"; id: string }
  | { view: "session"; tenant: string; session: string }
  | { view: "faults" }
  | { view: "agents" }
  | { view: "agent"; name: string }
  | { view: "tenants" }
  | { view: "replicas" }
  | { view: "nowhere" };

export const ROOT = "/console";

/** The view of an address. */
export function viewOf(path: string, search = ""): View {
  const [, first = "", second, third, ...rest] = path
    .replace(/\/+$/, "")
    .slice(ROOT.length)
    .split("/")
    .map(decoded);
  if (rest.length > 0) return { view: "nowhere" };
  if (second === undefined) return plain(first, search);
  if (first === "runs" && third === undefined) return { view: "run", id: second };
  if (first === "agents" && third === undefined) return { view: "agent", name: second };
  if (first === "sessions" && third !== undefined)
    return { view: "session", tenant: second, session: third };
  return { view: "nowhere" };
}

function plain(name: string, search: string): View {
  switch (name) {
    case "":
      return { view: "overview" };
    case "find":
      return { view: "find", q: new URLSearchParams(search).get("q") ?? "" };
    case "runs":
    case "faults":
    case "agents":
    case "tenants":
    case "replicas":
      return { view: name };
    default:
      return { view: "nowhere" };
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const to = {
  find: (q: string) => `${ROOT}/find?${new URLSearchParams({ q })}`,
  runs: (filters: Partial<Filters> = {}) => `${ROOT}/runs${searchOf(filters)}`,
  run: (id: string, tab?: string, at?: number) =>
    `${ROOT}/runs/${id}${query({ tab, at: at?.toString() })}`,
  session: (tenant: string, session: string) =>
    `${ROOT}/sessions/${encodeURIComponent(tenant)}/${encodeURIComponent(session)}`,
  agent: (name: string) => `${ROOT}/agents/${encodeURIComponent(name)}`,
};

/** The filters of the list. */
export interface Filters {
  tenant: string;
  agent: string;
  state: string;
  fault: string;
  session: string;
  since: string;
  until: string;
  before: string;
}

export const FILTERS = [
  "tenant",
  "agent",
  "state",
  "fault",
  "session",
  "since",
  "until",
  "before",
] as const;

/**
 * The filters of an address; other parameters are ignored. An unknown state is kept, because the
 * gateway refuses it and it must not look like another state.
 */
export function filtersOf(search: string): Filters {
  const given = new URLSearchParams(search);
  return Object.fromEntries(
    FILTERS.map((name) => [name, given.get(name)?.trim() ?? ""]),
  ) as unknown as Filters;
}

/** Encodes filters in one way only, so that equal filters have equal addresses. */
export function searchOf(filters: Partial<Filters>): string {
  return query(Object.fromEntries(FILTERS.map((name) => [name, filters[name]])));
}

function query(members: Readonly<Record<string, string | undefined>>): string {
  const set = Object.entries(members).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && entry[1] !== "",
  );
  // Times stay readable: a colon needs no escape here.
  return set.length === 0 ? "" : `?${new URLSearchParams(set)}`.replaceAll("%3A", ":");
}

/** The address with some query parameters set or removed. */
export function withQuery(
  path: string,
  search: string,
  changed: Readonly<Record<string, string | undefined>>,
): string {
  return path + query({ ...Object.fromEntries(new URLSearchParams(search)), ...changed });
}

/** A configured link with its placeholders filled; https only. */
export function filled(
  template: string,
  values: Readonly<Record<string, string | null | undefined>>,
): string | undefined {
  let isWhole = true;
  const text = template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = values[name];
    isWhole &&= Boolean(value);
    return encodeURIComponent(value ?? "");
  });
  return isWhole && text.startsWith("https://") ? text : undefined;
}
