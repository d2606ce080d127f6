import type { ReactNode } from "react";

export function Logo(): ReactNode {
  return (
    <svg className="logo" viewBox="0 0 32 32" aria-hidden="true">
      <circle cx="16" cy="16" r="5" />
      <path d="M16 3.500v7.500M16 21v7.500M3.500 16H11M21 16h7.500M7.200 7.200l5.300 5.300M19.500 19.500l5.300 5.300M24.800 7.200l-5.300 5.300M12.500 19.500l-5.300 5.300" />
    </svg>
  );
}
