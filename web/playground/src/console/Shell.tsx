// The frame of every view: menu, search, health, and global shortcuts.
import { type FormEvent, type ReactNode, type RefObject, useEffect, useRef, useState } from "react";

import { Button } from "../ui/Button.js";
import { Icon } from "../ui/Icon.js";
import { Logo } from "../ui/Logo.js";
import { useConsole } from "./context.js";
import { HealthStrip } from "./HealthStrip.js";
import { Help } from "./Help.js";
import { useShortcuts } from "./keys.js";
import { Link, navigate, useAddress } from "./router.js";
import { ROOT, to, viewOf } from "./url.js";

interface Props {
  theme: "light" | "dark";
  onTheme: () => void;
  onKey: () => void;
  children: ReactNode;
}

export function Shell({ theme, onTheme, onKey, children }: Props): ReactNode {
  const { me } = useConsole();
  const { path, search } = useAddress();
  const [isBlurred, setBlurred] = useState(false);
  const [isHelping, setHelping] = useState(false);
  const box = useRef<HTMLInputElement>(null);
  const main = useRef<HTMLElement>(null);
  const go = (place: string) => () => navigate(ROOT + place);
  useShortcuts({
    "/": () => box.current?.focus(),
    ".": () => setBlurred((before) => !before),
    "?": () => setHelping(true),
    "g r": go("/runs"),
    "g f": go("/faults"),
    "g a": go("/agents"),
    "g s": go(""),
  });
  useEffect(() => {
    main.current?.scrollTo(0, 0);
  }, [path]);
  return (
    <div className="console" data-blurred={isBlurred}>
      <a className="skip" href="#main">
        To the content
      </a>
      <header className="header">
        <a
          className="home-link"
          aria-label="Capstan console"
          href={ROOT}
          onClick={(event) => {
            event.preventDefault();
            navigate(ROOT);
          }}
        >
          <Logo />{" "}
          <span>
            Capstan <b>console</b>
          </span>
        </a>
        <Menu path={path} withReplicas={me.replicas} />
        <SearchBox key={search} box={box} />
        <div className="row tools">
          <Button
            size="icon"
            look="ghost"
            aria-pressed={isBlurred}
            aria-label="Blur content"
            title="Blur content (.)"
            onClick={() => setBlurred(!isBlurred)}
          >
            <Icon name="eye" />
          </Button>
          <Button
            size="icon"
            look="ghost"
            aria-label="Help"
            title="Keys and help (?)"
            onClick={() => setHelping(true)}
          >
            <Icon name="help" />
          </Button>
          {me.who !== "local" && (
            <Button
              size="icon"
              look="ghost"
              aria-label="Key"
              title={`${me.who} ${me.name}`}
              onClick={onKey}
            >
              <Icon name="key" />
            </Button>
          )}
          <Button
            size="icon"
            look="ghost"
            aria-label={theme === "dark" ? "Light theme" : "Dark theme"}
            onClick={onTheme}
          >
            <Icon name={theme === "dark" ? "sun" : "moon"} />
          </Button>
        </div>
      </header>
      <HealthStrip />
      <main id="main" ref={main} className="main" tabIndex={-1}>
        {children}
      </main>
      {isHelping && <Help onClose={() => setHelping(false)} />}
    </div>
  );
}

const MENU = [
  ["", "Overview"],
  ["/runs", "Runs"],
  ["/faults", "Faults"],
  ["/agents", "Agents"],
  ["/tenants", "Tenants"],
] as const;

function Menu({ path, withReplicas }: { path: string; withReplicas: boolean }): ReactNode {
  const entries = withReplicas ? [...MENU, ["/replicas", "Replicas"] as const] : MENU;
  const isHere = (place: string) =>
    place === "" ? viewOf(path).view === "overview" : path.startsWith(ROOT + place);
  return (
    <nav className="menu" aria-label="Console">
      {entries.map(([place, name]) => (
        <Link key={place} href={ROOT + place} aria-current={isHere(place) ? "page" : undefined}>
          {name}
        </Link>
      ))}
    </nav>
  );
}

/** Escape leaves the field, so that the page's shortcuts work again. */
export function SearchBox({ box }: { box: RefObject<HTMLInputElement | null> }): ReactNode {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const q = String(new FormData(event.currentTarget).get("q") ?? "").trim();
    if (q !== "") navigate(to.find(q));
  };
  return (
    <form className="search" role="search" onSubmit={submit}>
      <Icon name="search" />
      <input
        ref={box}
        className="input"
        name="q"
        type="search"
        aria-label="Find by any id"
        placeholder="Any id  ( / )"
        autoComplete="off"
        spellCheck={false}
        onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
      />
    </form>
  );
}
