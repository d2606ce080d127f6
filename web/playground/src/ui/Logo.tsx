import type { ReactNode } from "react";

export function Logo(): ReactNode {
  return (
    <svg className="logo" viewBox="0 0 32 32" aria-hidden="true">
      <circle cx="16" cy="16" r="5" />
      <path
        d="M16 3.5v7.5M16 21v7.5M3.5 16H11M21 16h7.5M7.2 7.2l5.3 5.3
      M19.5 19.5l5.3 5.3M24.8 7.2l-5.3 5.3M12.5 19.5l-5.3 5.3"
      />
    </svg>
  );
}
