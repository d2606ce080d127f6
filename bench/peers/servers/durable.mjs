// Durable Streams' own server for Node, with its streams in files.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.PEERS}/node/`);
const { DurableStreamTestServer } = require("@durable-streams/server");

const [port, dataDir] = [Number(process.argv[2]), process.argv[3]];
await new DurableStreamTestServer({ port, host: "127.0.0.1", dataDir }).start();
