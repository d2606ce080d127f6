// Identifies the visitor before anything is shown, then shows the view of the address.
import { type ReactNode, useEffect, useMemo, useState } from "react";

import { keepKey, storedKey } from "../authorization.js";
import { KeyDialog } from "../parts/KeyDialog.js";
import { Boundary } from "../show/Boundary.js";
import { useTheme } from "../use-theme.js";
import { Api, Refused } from "./api/api.js";
import { Feed } from "./api/feed.js";
import { ConsoleContext } from "./context.js";
import { Shelf } from "./list/shelf.js";
import { Failure } from "./parts/Failure.js";
import { useAddress } from "./router.js";
import { Shell } from "./Shell.js";
import { type View, viewOf } from "./url.js";
import { useQuery } from "./use-query.js";
import { Agents } from "./views/Agents.js";
import { Faults } from "./views/Faults.js";
import { Find } from "./views/Find.js";
import { Overview } from "./views/Overview.js";
import { Replicas } from "./views/Replicas.js";
import { Run } from "./views/Run.js";
import { Runs } from "./views/Runs.js";
import { Session } from "./views/Session.js";
import { Tenants } from "./views/Tenants.js";

export function Console(): ReactNode {
  const [theme, toggleTheme] = useTheme();
  const [key, setKey] = useState(storedKey);
  const [isAsking, setAsking] = useState(false);
  const api = useMemo(() => new Api(key), [key]);
  const result = useQuery(`me ${key}`, api.me);
  const me = result.value;
  const isRefused =
    result.error instanceof Refused && (result.error.status === 401 || result.error.status === 403);
  const shared = useMemo(
    () => me && { api, me, feed: new Feed(api.events), shelf: new Shelf() },
    [api, me],
  );
  useFollowing(shared?.feed);
  useEffect(() => {
    if (isRefused) setAsking(true);
  }, [isRefused, key]);

  const use = (next: string) => {
    keepKey(next);
    setKey(next);
    setAsking(false);
  };
  return (
    <ConsoleContext value={shared ?? null}>
      {shared ? (
        <Shell theme={theme} onTheme={toggleTheme} onKey={() => setAsking(true)}>
          <Shown />
        </Shell>
      ) : (
        <Before
          error={result.error}
          isRefused={isRefused}
          onAgain={result.again}
          onKey={() => setAsking(true)}
        />
      )}
      <KeyDialog
        isOpen={isAsking}
        complaint={isRefused && key !== "" ? (result.error as Refused).message : null}
        onKey={use}
        onClose={() => setAsking(false)}
      />
    </ConsoleContext>
  );
}

/** The visitor is not known yet. */
function Before({
  error,
  isRefused,
  onAgain,
  onKey,
}: {
  error: unknown;
  isRefused: boolean;
  onAgain: () => void;
  onKey: () => void;
}): ReactNode {
  if (error === undefined)
    return (
      <main className="before">
        <p className="muted">…</p>
      </main>
    );
  return (
    <main className="before">
      <h1>Capstan console</h1>
      {isRefused ? (
        <p>
          It wants a key: a tenant's, or an operator's.{" "}
          <button type="button" className="link" onClick={onKey}>
            Give one
          </button>
        </p>
      ) : (
        <Failure error={error} onAgain={onAgain} />
      )}
    </main>
  );
}

/** Keeps the feed open while the tab is visible. */
function useFollowing(feed: Feed | undefined): void {
  useEffect(() => {
    if (!feed) return;
    const look = () => (document.hidden ? feed.stop() : feed.start());
    look();
    document.addEventListener("visibilitychange", look);
    return () => {
      document.removeEventListener("visibilitychange", look);
      feed.stop();
    };
  }, [feed]);
}

const TITLES: Readonly<Record<View["view"], string>> = {
  overview: "Overview",
  find: "Find",
  runs: "Runs",
  run: "Run",
  session: "Session",
  faults: "Faults",
  agents: "Agents",
  agent: "Agent",
  tenants: "Tenants",
  replicas: "Replicas",
  nowhere: "Nowhere",
};

function Shown(): ReactNode {
  const { path, search } = useAddress();
  const view = viewOf(path, search);
  useEffect(() => {
    document.title = `${TITLES[view.view]} · Capstan console`;
  }, [view.view]);
  return (
    <Boundary
      of={path}
      instead={
        <p className="view" role="alert">
          This view broke. The others work; nothing at the gateway was changed.
        </p>
      }
    >
      {viewed(view)}
    </Boundary>
  );
}

function viewed(view: View): ReactNode {
  switch (view.view) {
    case "overview":
      return <Overview />;
    case "find":
      return <Find q={view.q} />;
    case "runs":
      return <Runs />;
    case "run":
      return <Run id={view.id} />;
    case "session":
      return <Session tenant={view.tenant} session={view.session} />;
    case "faults":
      return <Faults />;
    case "agents":
      return <Agents />;
    case "agent":
      return <Agents only={view.name} />;
    case "tenants":
      return <Tenants />;
    case "replicas":
      return <Replicas />;
    case "nowhere":
      return (
        <div className="view">
          <h1>There is nothing here</h1>
          <p>Use the menu above.</p>
        </div>
      );
  }
}
