// Line icons, drawn for this page on a grid of 24.
import type { ReactNode } from "react";

const PATHS = {
  user: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM4 20c1.5-4 4.5-5.5 8-5.5s6.5 1.5 8 5.5",
  server: "M4 5h16v5H4zM4 14h16v5H4zM7.5 7.5h.01M7.5 16.5h.01",
  sparkles:
    "M12 4l1.8 5.2L19 11l-5.2 1.8L12 18l-1.8-5.2L5 11l5.2-1.8ZM19 4v3M20.5 5.5h-3" +
    "M5 17v3M6.5 18.5h-3",
  wrench:
    "M20 7.5a4.5 4.5 0 0 1-6 4.2L7 19a2 2 0 0 1-2.8-2.8l7.3-7a4.5 4.5 0 0 1 5.7-5.7" +
    "L14.5 6l.5 3 3 .5Z",
  shield: "M12 3.5l7 2.5v5.5c0 4.5-3 7.5-7 9-4-1.5-7-4.5-7-9V6Z",
  cut:
    "M6 8.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Z" +
    "M6 20.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM8 7.5L20 18M8 16.5L20 6",
  send: "M4 12l16-8-5.5 16-3-6.5Z",
  stop: "M7 7h10v10H7z",
  bulb:
    "M9 18h6M10 21h4" +
    "M12 3a6 6 0 0 0-3.5 10.8c.6.5 1 1.2 1 2V16h5v-.2c0-.8.4-1.5 1-2A6 6 0 0 0 12 3Z",
  book:
    "M5 4.5h5.5A1.5 1.5 0 0 1 12 6v14a2 2 0 0 0-2-2H5Z" +
    "M19 4.5h-5.5A1.5 1.5 0 0 0 12 6v14a2 2 0 0 1 2-2h5Z",
  image: "M4 5h16v14H4ZM4 16l4.5-4.5 4 4 2.5-2.5 5 5M15.5 9.5h.01",
  alert: "M12 4l9 16H3ZM12 10v4.5M12 17.5h.01",
  moon: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10Z",
  sun:
    "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2" +
    "M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M18.7 5.3l-1.4 1.4M6.7 17.3l-1.4 1.4",
  key: "M14.5 13a4.5 4.5 0 1 0-4.3-3.2L4 16v4h4v-2.5h2.5V15l1-1a4.5 4.5 0 0 0 3-1ZM16 8h.01",
  plus: "M12 5v14M5 12h14",
  play: "M8 5l11 7-11 7Z",
  pause: "M8 5v14M16 5v14",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18ZM12 7v5l3.5 2",
  check: "M4.5 12.5l5 5 10-11",
  mend: "M4 13l4 4 8.5-9.5M12.5 17l1 0 7-8",
  cross: "M6 6l12 12M18 6L6 18",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM16 16l4.5 4.5",
  copy: "M9 9h11v11H9ZM15 9V4H4v11h5",
  download: "M12 4v11M7 10.5l5 5 5-5M4 20h16",
  help:
    "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18Z" +
    "M9.5 9.5a2.5 2.5 0 1 1 3.5 2.3c-.7.3-1 .8-1 1.7M12 16.5h.01",
  eye:
    "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12Z" +
    "M12 14.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Z",
  list: "M8 6h12M8 12h12M8 18h12M4 6h.01M4 12h.01M4 18h.01",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  pen: "M5 19l1-4L16 5l3 3L9 18ZM14 7l3 3",
  again: "M19.5 12a7.5 7.5 0 1 1-2.2-5.3M19.5 4v4h-4",
  out: "M14 5h5v5M19 5l-9 9M17 14v5H5V7h5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }): ReactNode {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
