// An error boundary: a part that fails to render is replaced, until its data change.
import { Component, type ReactNode } from "react";

interface Props {
  /** The data of the part. When they change, the part is rendered again. */
  of: unknown;
  /** Shown in place of a part that failed. */
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
