// How a UserError looks: its domain decides icon and tone, its flag whether a retry is offered.
import type { UserErrorData } from "./generated/wire.js";
import { ErrorDomain } from "./generated/wire.js";

/** Names of icons; most icon sets know them under these. */
export type DomainIcon = "user" | "server" | "sparkles" | "wrench" | "shield";
/** How grave it looks. */
export type DomainTone = "info" | "warning" | "danger";

/** What to draw for a UserError. */
export interface DomainView {
  icon: DomainIcon;
  tone: DomainTone;
  /** Who failed, in a word or two. */
  label: string;
  /** What to write on the button, or nothing if a retry is not offered. */
  retry: string | null;
}

const VIEWS: Readonly<Record<ErrorDomain, Omit<DomainView, "retry">>> = {
  client: { icon: "user", tone: "info", label: "Request" },
  system: { icon: "server", tone: "danger", label: "System" },
  llm: { icon: "sparkles", tone: "warning", label: "Model" },
  tool: { icon: "wrench", tone: "warning", label: "Tool" },
  security: { icon: "shield", tone: "danger", label: "Security" },
};

/** The view of a UserError. A domain that is absent, or not known here, is the system's. */
export function viewUserError(error: UserErrorData): DomainView {
  const domain = error.domain ?? ErrorDomain.SYSTEM;
  const view = Object.hasOwn(VIEWS, domain) ? VIEWS[domain] : VIEWS.system;
  return { ...view, retry: error.retryable ? "Try again" : null };
}
