// Long work in short pieces: between two of them a key, a click or a frame of the screen has its
// turn.

/**
 * Milliseconds of one piece. Four of them fit into a task that nobody notices, should the machine
 * be as slow as that.
 */
const PIECE = 10;

export class Pace {
  #since = performance.now();

  /** It is somebody else's turn. */
  get isOver(): boolean {
    return performance.now() - this.#since >= PIECE;
  }

  /** Lets the others go first. By a message, since timers of a hidden tab come once a second. */
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
