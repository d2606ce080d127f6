// A bad network in front of a server: it breaks the first streamed answer off in a place, and lets
// everything else pass.
import { createServer, request } from "node:http";

/** What stands in the last event before the cut, and the how-manieth such event it is. */
export const places = {
  claude: {
    "before-events": ["", 0],
    "after-thinking": ["content_block_stop", 1],
    "mid-text": ["text_delta", 3],
    "mid-arguments": ["input_json_delta", 2],
    "before-end": ['"message_delta"', 1],
  },
  codex: {
    "before-events": ["", 0],
    "after-thinking": ["response.output_item.done", 1],
    "mid-text": ["response.output_text.delta", 3],
    "mid-arguments": ["response.function_call_arguments.delta", 1],
    "before-end": ["response.output_item.done", 3],
  },
};

/**
 * @param {string} target
 * @param {[string, number]} place
 */
export async function startCutter(target, place) {
  let isDue = true;
  const server = createServer((incoming, outgoing) => {
    const headers = { ...incoming.headers, host: new URL(target).host };
    const { method } = incoming;
    const upstream = request(target + incoming.url, { method, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode, answer.headers);
      outgoing.flushHeaders();
      const isStream = answer.headers["content-type"]?.startsWith("text/event-stream");
      if (!isStream || !isDue) return void answer.pipe(outgoing);
      isDue = false;
      forward(answer, outgoing, place, () => upstream.destroy());
    });
    upstream.on("error", () => outgoing.destroy());
    incoming.pipe(upstream);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { url: `http://127.0.0.1:${server.address().port}`, stop };
}

function forward(answer, outgoing, [part, nth], abort) {
  let [rest, found, isCut] = ["", 0, false];
  const cut = () => {
    isCut = true;
    abort();
    outgoing.destroy();
  };
  answer.setEncoding("utf8");
  answer.on("error", () => isCut || outgoing.destroy());
  answer.on("end", () => isCut || outgoing.end(rest));
  answer.on("data", (text) => {
    rest += text;
    for (let at; !isCut && (at = rest.indexOf("\n\n")) >= 0; rest = rest.slice(at + 2)) {
      if (nth === 0) return cut();
      const event = rest.slice(0, at + 2);
      if (event.includes(part)) found += 1;
      // What was written goes out first.
      if (found === nth) return void outgoing.write(event, cut);
      outgoing.write(event);
    }
  });
}
