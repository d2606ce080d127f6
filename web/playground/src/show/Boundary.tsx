// A part that breaks costs itself only: something else is shown in its place, until there is
// something new to show.
import { Component, type ReactNode } from "react";

interface Props {
  /** What is shown. Once it is another, the part gets another chance. */
  of: unknown;
  /** What is shown instead of a part that broke. */
  instead: ReactNode;
  children: ReactNode;
}

interface State {
  of: unknown;
  isBroken: boolean;
}

export class Boundary extends Component<Props, State> {
  override state: State = { of: this.props.of, isBroken: false };

  static getDerivedStateFromError(): Partial<State> {
    return { isBroken: true };
  }

  static getDerivedStateFromProps({ of }: Props, state: State): Partial<State> | null {
    return of === state.of ? null : { of, isBroken: false };
  }

  override render(): ReactNode {
    return this.state.isBroken ? this.props.instead : this.props.children;
  }
}
