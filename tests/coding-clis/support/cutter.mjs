// A bad network in front of a server: it breaks off one answer of the model in one place, and
// forwards everything else. Answers come as server-sent events, or as frames of a WebSocket.
import { Agent, createServer, request } from "node:http";
import { connect } from "node:net";

import { frames } from "./frames.mjs";

/** A text in the last event before the cut, and the number of that event among such events. */
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

/** Places of an answer that is a text alone. */
export const placesOfText = {
  "before-events": ["", 0],
  "after-begin": ["response.created", 1],
  "mid-text": ["response.output_text.delta", 2],
  "after-text": ["response.output_text.done", 1],
  "before-end": ["response.output_item.done", 1],
};

/** Counts answers and their events, and says where to cut. */
class Cut {
  #answers = 0;
  #found = 0;
  isDone = false;

  constructor([part, nth], answer) {
    Object.assign(this, { part, nth, answer });
  }

  begin() {
    this.#answers += 1;
    this.#found = 0;
  }

  /** Whether the connection ends before this event, behind it, or not. */
  at(event) {
    if (this.isDone || this.#answers !== this.answer) return undefined;
    if (this.nth > 0 && event.includes(this.part)) this.#found += 1;
    if (this.#found !== this.nth) return undefined;
    this.isDone = true;
    return this.nth === 0 ? "before" : "behind";
  }
}

/**
 * @param {string} target
 * @param {[string, number]} place
 * @param {number} answer the number of the answer, from 1
 */
export async function startCutter(target, place, answer = 1) {
  const cut = new Cut(place, answer);
  const sockets = new Set();
  let upgrades = 0;
  // One connection to the server for each of the client: which one it is matters to the server.
  const agents = new WeakMap();
  const agentOf = (socket) => {
    if (!agents.has(socket)) {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      agents.set(socket, agent);
      socket.on("close", () => agent.destroy());
    }
    return agents.get(socket);
  };
  const server = createServer((incoming, outgoing) => {
    const headers = { ...incoming.headers, host: new URL(target).host };
    const { method } = incoming;
    const options = { method, headers, agent: agentOf(incoming.socket) };
    const upstream = request(target + incoming.url, options, (response) => {
      outgoing.writeHead(response.statusCode, response.headers);
      outgoing.flushHeaders();
      const isStream = response.headers["content-type"]?.startsWith("text/event-stream");
      if (!isStream) return void response.pipe(outgoing);
      cut.begin();
      forwardEvents(response, outgoing, cut, () => upstream.destroy());
    });
    upstream.on("error", () => outgoing.destroy());
    incoming.pipe(upstream);
  });
  server.on("upgrade", (incoming, socket, head) => {
    upgrades += 1;
    forwardSocket(new URL(target), incoming, socket, head, cut, sockets);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = () => {
    server.closeAllConnections();
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  };
  const url = `http://127.0.0.1:${server.address().port}`;
  return { url, stop, wasCut: () => cut.isDone, upgrades: () => upgrades };
}

function forwardEvents(answer, outgoing, cut, abort) {
  let [rest, isCut] = ["", false];
  const end = () => {
    abort();
    outgoing.destroy();
  };
  answer.setEncoding("utf8");
  answer.on("error", () => isCut || outgoing.destroy());
  answer.on("end", () => isCut || outgoing.end(rest));
  answer.on("data", (text) => {
    rest += text;
    for (let at; !isCut && (at = rest.indexOf("\n\n")) >= 0; rest = rest.slice(at + 2)) {
      const event = rest.slice(0, at + 2);
      const place = cut.at(event);
      isCut = place !== undefined;
      if (place === "before") return end();
      // The event goes out before the connection ends.
      outgoing.write(event, isCut ? end : undefined);
    }
  });
}

/** Forwards a WebSocket with its handshake. */
function forwardSocket({ hostname, port, host }, incoming, socket, head, cut, sockets) {
  const upstream = connect(Number(port), hostname);
  const end = () => {
    socket.destroy();
    upstream.destroy();
  };
  for (const one of [socket, upstream]) {
    sockets.add(one);
    one.on("error", end);
    one.on("close", end);
  }
  const headers = Object.entries({ ...incoming.headers, host });
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  upstream.write(`${incoming.method} ${incoming.url} HTTP/1.1\r\n${lines}\r\n`);
  const asked = frames(({ text }) => {
    // A frame without generation starts no answer of the model.
    if (text?.includes('"response.create"') && !text.includes('"generate":false')) cut.begin();
  });
  const answered = frames(({ bytes, text }) => {
    const place = text === undefined || socket.destroyed ? undefined : cut.at(text);
    if (place === "before") return end();
    socket.write(bytes, place ? end : undefined);
  });
  const forward = (chunk) => {
    asked(chunk);
    upstream.write(chunk);
  };
  if (head.length > 0) forward(head);
  socket.on("data", forward);
  let handshake = Buffer.alloc(0);
  upstream.on("data", (chunk) => {
    if (handshake === undefined) return answered(chunk);
    handshake = Buffer.concat([handshake, chunk]);
    const at = handshake.indexOf("\r\n\r\n") + 4;
    if (at < 4) return;
    const rest = handshake.subarray(at);
    socket.write(handshake.subarray(0, at));
    handshake = undefined;
    answered(rest);
  });
}
