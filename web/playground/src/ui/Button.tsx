import type { ButtonHTMLAttributes, ReactNode } from "react";

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: "primary" | "outline" | "ghost" | "destructive";
  size?: "small" | "normal" | "icon";
}

export function Button({
  look = "outline",
  size = "normal",
  className = "",
  type = "button",
  ...rest
}: Props): ReactNode {
  return (
    <button type={type} className={`button button-${look} button-${size} ${className}`} {...rest} />
  );
}
