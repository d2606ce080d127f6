// resumable-stream over Redis, as its README shows it, behind Node's own server. POST /run/N
// streams N tokens of a new stream.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { port, SSE, tokens } from "./tokens.mjs";

// Installed elsewhere than this file is.
const require = createRequire(`${process.env.PEERS}/node/`);
const { createClient } = require("redis");
const { createResumableStreamContext } = require("resumable-stream");

const [publisher, subscriber] = [0, 1].map(() => createClient({ url: process.env.REDIS_URL }));
await Promise.all([publisher.connect(), subscriber.connect()]);
const context = createResumableStreamContext({ waitUntil: () => {}, publisher, subscriber });

createServer(async (request, response) => {
  request.resume();
  response.socket.setNoDelay(true);
  response.writeHead(200, SSE);
  const count = Number(request.url.split("/")[2]);
  const start = () => ReadableStream.from(tokens(count));
  const stream = await context.createNewResumableStream(randomUUID(), start);
  for await (const token of stream) {
    if (!response.write(token)) await once(response, "drain");
  }
  response.end();
}).listen({ port, host: "127.0.0.1", backlog: 4096 });
