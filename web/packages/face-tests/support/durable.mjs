// Reads with the published client of Durable Streams, whose reader fails when a connection breaks.
import { stream } from "@durable-streams/client";

/**
 * What a reader gets from an offset on until the stream is closed, where it stands then, and what
 * it died of.
 * @param onItems is told of all items so far; the reader waits for it
 */
export async function readFrom(url, from, { live = "sse", onItems = () => {} } = {}) {
  let [items, offset] = [[], from];
  try {
    const reader = await stream({ url, offset: from, live });
    await new Promise((resolve, reject) => {
      reader.subscribeJson(async (batch) => {
        [items, offset] = [[...items, ...batch.items], batch.offset];
        await onItems(items);
        if (batch.streamClosed) resolve();
      });
      // Without an error this means that everything was received.
      reader.closed.catch(reject);
    });
    return { items, offset };
  } catch (error) {
    return { items, offset, error };
  }
}
