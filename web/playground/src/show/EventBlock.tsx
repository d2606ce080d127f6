// Presentation events, each as a small card.
import { type EventView, type MediaItem, viewUserError } from "capstan";
import type { ReactNode } from "react";

import { Markdown } from "../markdown/Markdown.js";
import { typeOf } from "../raw.js";
import { safeLink, safeMedia, safePicture } from "../safe-url.js";
import { Badge } from "../ui/Badge.js";
import { Button } from "../ui/Button.js";
import { Icon } from "../ui/Icon.js";
import { Link } from "./Link.js";
import { Raw } from "./Raw.js";

interface Props {
  view: EventView;
  /** Called to retry, for failures after which a retry may help. */
  onRetry?: (() => void) | undefined;
}

export function EventBlock({ view, onRetry }: Props): ReactNode {
  switch (view.type) {
    case "citations":
      return <Citations view={view} />;
    case "progress":
      return <Progress view={view} />;
    case "media":
      return (
        <div className="media">
          {view.data.items.map((item, n) => (
            <Media key={n} item={item} />
          ))}
        </div>
      );
    case "markdown":
      return (
        <div className="card">
          <Markdown text={view.data.content} />
        </div>
      );
    case "thought":
      return (
        <details className="thought">
          <summary>
            <Icon name="bulb" /> Thought
          </summary>
          <p dir="auto">{view.data.thought}</p>
        </details>
      );
    case "user_error":
      return <UserError view={view} onRetry={onRetry} />;
    case "reset":
      return null;
    case "other":
      return <Other event={view.data} />;
  }
}

/** The types of either face that have a view, if their members fit. */
const SHOWN = [
  ...[
    "CITATION_BLOCK",
    "PROGRESS_INDICATOR",
    "MEDIA_CAROUSEL",
    "MARKDOWN_BLOCK",
    "THOUGHT_TRACE",
    "USER_ERROR",
    "STREAM_RESET",
    "INTERRUPT",
  ],
  ...[
    "TEXT_MESSAGE_CONTENT",
    "TEXT_MESSAGE_CHUNK",
    "REASONING_MESSAGE_CONTENT",
    "MESSAGES_SNAPSHOT",
    "CUSTOM",
  ],
];

/**
 * An event of an unknown type is collapsed. An event of a known type with invalid members is shown
 * raw in its place.
 */
function Other({ event }: { event: unknown }): ReactNode {
  const type = typeOf(event) ?? "Something without a type";
  const isForeign = typeOf(event) !== undefined && !SHOWN.includes(type.toUpperCase());
  return isForeign ? (
    <Raw title={`Event ${type}`} value={event} />
  ) : (
    <Raw title={`${type}, unchanged`} value={event} isOpen />
  );
}

type Of<T extends EventView["type"]> = Extract<EventView, { type: T }>;

function Citations({ view }: { view: Of<"citations"> }): ReactNode {
  return (
    <section className="card" aria-label="Sources">
      <h3 className="card-title">
        <Icon name="book" /> Sources
      </h3>
      <ol className="citations">
        {view.data.citations.map(({ uri, title, snippet, confidence }, n) => (
          <li key={n} dir="auto">
            <Link address={uri}>{title}</Link>{" "}
            {Number.isFinite(confidence) && <Badge>{Math.round(confidence * 100)} %</Badge>}
            {snippet && <p className="muted">{snippet}</p>}
          </li>
        ))}
      </ol>
    </section>
  );
}

const TONE = { running: "info", complete: "good", failed: "danger" } as const;

function Progress({ view: { data } }: { view: Of<"progress"> }): ReactNode {
  const share = Math.min(
    1,
    Math.max(0, data.progress_percent ?? (data.status === "complete" ? 1 : 0)),
  );
  return (
    <div className="card progress">
      <span dir="auto">{data.label}</span>
      <Badge tone={TONE[data.status]}>{data.status}</Badge>
      <progress aria-label={data.label} max={1} value={share} data-status={data.status} />
    </div>
  );
}

function Media({ item }: { item: MediaItem }): ReactNode {
  const label = item.alt_text || item.mime_type;
  const picture = safePicture(item.url);
  const media = safeMedia(item.url);
  const link = safeLink(item.url);
  if (picture) return <img className="card" src={picture} alt={label} />;
  if (media)
    return item.mime_type.startsWith("audio/") ? (
      <audio controls src={media} aria-label={label} />
    ) : (
      <video controls src={media} aria-label={label} />
    );
  return (
    <figure className="card medium">
      <Icon name="image" />
      <figcaption dir="auto">
        {label}
        {/* What lies elsewhere is not loaded: that would tell its server who reads. */}
        <span className="muted">
          {link ? (
            <Link address={item.url}>{`Open at ${new URL(link).host}`}</Link>
          ) : (
            "This address is not followed."
          )}
        </span>
      </figcaption>
    </figure>
  );
}

function UserError({
  view: { data },
  onRetry,
}: {
  view: Of<"user_error">;
  onRetry: (() => void) | undefined;
}): ReactNode {
  const { icon, tone, label, retry } = viewUserError(data);
  return (
    <div className={`card notice tone-${tone}`} role="note" data-domain={data.domain ?? "system"}>
      <Icon name={icon} />
      <div>
        <strong>
          {label}
          {data.code ? ` · ${data.code}` : ""}
        </strong>
        <p dir="auto">{data.message}</p>
      </div>
      {retry && onRetry && (
        <Button size="small" onClick={onRetry}>
          {retry}
        </Button>
      )}
    </div>
  );
}
