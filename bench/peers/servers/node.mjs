// A hand-written SSE server, as one writes it for an answer that nobody has to resume: no journal,
// no cursor. POST /run/N streams N tokens; GET /live watches, POST /speak/MICROSECONDS begins to
// tell all watchers the time.
import { once } from "node:events";
import { createServer } from "node:http";
import { event, port, SSE, tokens } from "./tokens.mjs";

const watchers = new Set();

async function run(response, count) {
  for await (const token of tokens(count)) {
    if (!response.write(token)) await once(response, "drain");
  }
  response.end();
}

function watch(response) {
  watchers.add(response);
  response.on("close", () => watchers.delete(response));
  response.flushHeaders();
}

function speak(period) {
  setInterval(() => {
    const micros = Math.round((performance.timeOrigin + performance.now()) * 1000);
    const token = event(`@${micros}@`);
    for (const watcher of watchers) watcher.write(token);
  }, period / 1000);
}

createServer((request, response) => {
  const [, what, argument] = request.url.split("/");
  request.resume();
  response.socket.setNoDelay(true);
  response.writeHead(200, SSE);
  if (what === "run") return run(response, Number(argument));
  if (what === "live") return watch(response);
  speak(Number(argument));
  response.end();
}).listen({ port, host: "127.0.0.1", backlog: 4096 });
