// Splits long work into short pieces, so that keys, clicks and animation frames are handled in
// between.

/**
 * The length of a piece in milliseconds. Four of them stay below a noticeable delay even on a slow
 * machine.
 */
const PIECE = 10;

export class Pace {
  #since = performance.now();

  /** Whether the piece has used its time. */
  get isOver(): boolean {
    return performance.now() - this.#since >= PIECE;
  }

  /** Yields to other tasks. Uses a message, because timers of a hidden tab run once a second. */
  async rest(): Promise<void> {
    await new Promise<void>((resolve) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        port1.close();
        resolve();
      };
      port2.postMessage(null);
    });
    this.#since = performance.now();
  }
}
