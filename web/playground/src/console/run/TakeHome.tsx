// Downloads of a run: its frames, its packets, or commands to fetch or repeat it.
import { newId } from "capstan";
import { type ReactNode, useMemo, useState } from "react";

import { Button } from "../../ui/Button.js";
import { Icon } from "../../ui/Icon.js";
import type { RunRow } from "../generated/answers.js";
import { useConsole } from "../context.js";
import { bytes } from "../format.js";
import { CopyButton } from "../../ui/Copy.js";
import { Failure } from "../parts/Failure.js";
import { againCurl, attachCurl, downloadCurl, tailCommand } from "./curl.js";
import { read, Tape } from "./tape.js";

/** The largest download in a tab, in bytes. */
const LARGEST = 50_000_000;

interface Props {
  row: RunRow;
  /** Undefined while content is hidden. */
  body: string | undefined;
  mayRead: boolean;
}

export function TakeHome({ row, body, mayRead }: Props): ReactNode {
  const { me } = useConsole();
  const again = useMemo(
    () => (body === undefined ? undefined : againCurl(location.origin, row, body, newId())),
    [body, row.face, row.agent],
  );
  return (
    <div className="home">
      {mayRead &&
        (row.bytes > LARGEST ? (
          <p className="muted">
            With {bytes(row.bytes)} it is too large for a tab; the command below fetches it.
          </p>
        ) : (
          <Downloads row={row} />
        ))}
      {mayRead && (
        <Command
          title="Download it as it was sent"
          text={downloadCurl(location.origin, row.stream_id)}
        />
      )}
      <Command title="Attach to it again" text={attachCurl(location.origin, row.stream_id)} />
      {again && <Command title="Ask the same anew, as a run of its own" text={again} isContent />}
      <Command title="Follow it in a terminal" text={tailCommand(location.origin, row.stream_id)} />
      <Command
        title="Serve the downloaded .sse at its own pace: a bug report that runs"
        text={`capstan replay ${row.stream_id}.sse --listen 127.0.0.1:9000`}
      />
      <p className="muted">
        Commands take the key from <code>$CAPSTAN_KEY</code>
        {me.who === "operator" ? (
          <>
            : the download takes an operator's, the others one of tenant <b>{row.tenant}</b>
          </>
        ) : (
          ""
        )}
        .
      </p>
    </div>
  );
}

function Downloads({ row }: { row: RunRow }): ReactNode {
  const { api } = useConsole();
  const [error, setError] = useState<unknown>(undefined);
  const fetchAs = (kind: "sse" | "jsonl") => () => {
    setError(undefined);
    api
      .frames(row.stream_id, { face: "cap" })
      .then((response) => response.text())
      .then(async (text) =>
        save(`${row.stream_id}.${kind}`, kind === "sse" ? text : await linesOf(text)),
      )
      .catch(setError);
  };
  return (
    <>
      <div className="row">
        <Button onClick={fetchAs("sse")}>
          <Icon name="download" /> .sse, as sent
        </Button>
        <Button onClick={fetchAs("jsonl")}>
          <Icon name="download" /> .jsonl, a packet a line
        </Button>
      </div>
      {error !== undefined && <Failure error={error} onAgain={fetchAs("sse")} />}
    </>
  );
}

async function linesOf(text: string): Promise<string> {
  const tape = Tape.EMPTY.with(await read(text, "cap"));
  return Array.from({ length: tape.length }, (_, n) => `${tape.frame(n).data}\n`).join("");
}

/** Saves by a temporary link, because a request needs a key and a plain address has none. */
function save(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function Command({
  title,
  text,
  isContent = false,
}: {
  title: string;
  text: string;
  isContent?: boolean;
}): ReactNode {
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <div className="command">
        <pre tabIndex={0} aria-label={title} className={isContent ? "content" : undefined}>
          {text}
        </pre>
        <CopyButton text={text} label={`command: ${title.toLowerCase()}`} />
      </div>
    </section>
  );
}
