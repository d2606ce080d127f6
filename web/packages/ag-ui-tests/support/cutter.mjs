// @ts-nocheck: tests of other packages use this file unchanged.
// A proxy that cuts responses after a number of events, between two events, as a bad network would.
import { createServer, request } from "node:http";

/** The numbers of events after which a stream is cut: six positions, and in the soak every one. */
export const cutsOf = (events) =>
  process.env["CAPSTAN_SOAK"]
    ? Array.from({ length: events - 1 }, (_, n) => n + 1)
    : [1, 2, 3, 7, events - 2, events - 1];

/**
 * Starts a proxy in front of `target`. `plan(n)` returns after how many events the n-th streamed
 * response is cut; `undefined` means never. The log has the Last-Event-ID of every request.
 */
export async function startCutter(target, plan) {
  const log = [];
  const server = createServer((incoming, outgoing) => {
    const cutAfter = plan(log.length);
    log.push(incoming.headers["last-event-id"]);
    const headers = { ...incoming.headers, host: new URL(target).host };
    const upstream = request(
      target + incoming.url,
      { method: incoming.method, headers },
      (response) => {
        outgoing.writeHead(response.statusCode, response.headers);
        outgoing.flushHeaders();
        forward(response, outgoing, cutAfter, () => upstream.destroy());
      },
    );
    upstream.on("error", () => outgoing.destroy());
    incoming.pipe(upstream);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  const stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { url, endpoint: `${url}/v1/ag-ui`, log, stop };
}

function forward(response, outgoing, cutAfter = Infinity, abort) {
  let buffer = "";
  let events = 0;
  let isCut = false;
  // Written bytes are sent first. The client notices the missing end of the chunked body.
  const cutAfterWriting = (frame) => {
    isCut = true;
    abort();
    outgoing.write(frame, () => outgoing.destroy());
  };
  response.setEncoding("utf8");
  response.on("data", (text) => {
    buffer += text;
    for (let at; !isCut && (at = buffer.indexOf("\n\n")) >= 0; buffer = buffer.slice(at + 2)) {
      const frame = buffer.slice(0, at + 2);
      if (frame.includes("data:") && ++events >= cutAfter) cutAfterWriting(frame);
      else outgoing.write(frame);
    }
  });
  response.on("end", () => isCut || outgoing.end(buffer));
  response.on("error", () => isCut || outgoing.destroy());
}
