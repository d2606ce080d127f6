// The look of a UserError: its domain decides icon and tone, and its flag decides about a retry.
import type { UserErrorData } from "./generated/wire.js";
import { ErrorDomain } from "./generated/wire.js";

/** Names of icons that most icon sets have. */
export type DomainIcon = "user" | "server" | "sparkles" | "wrench" | "shield";
/** How serious it looks. */
export type DomainTone = "info" | "warning" | "danger";

/** The look of a UserError. */
export interface DomainView {
  icon: DomainIcon;
  tone: DomainTone;
  /** The part that failed, in a word or two. */
  label: string;
  /** The text of the button; null if no retry is offered. */
  retry: string | null;
}

const VIEWS: Readonly<Record<ErrorDomain, Omit<DomainView, "retry">>> = {
  client: { icon: "user", tone: "info", label: "Request" },
  system: { icon: "server", tone: "danger", label: "System" },
  llm: { icon: "sparkles", tone: "warning", label: "Model" },
  tool: { icon: "wrench", tone: "warning", label: "Tool" },
  security: { icon: "shield", tone: "danger", label: "Security" },
};

/** The look of a UserError. An absent or unknown domain counts as the system. */
export function viewUserError(error: UserErrorData): DomainView {
  const domain = error.domain ?? ErrorDomain.SYSTEM;
  const view = Object.hasOwn(VIEWS, domain) ? VIEWS[domain] : VIEWS.system;
  return { ...view, retry: error.retryable ? "Try again" : null };
}
