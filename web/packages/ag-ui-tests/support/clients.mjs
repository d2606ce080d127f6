// The published clients behind one small interface, so that every test runs with each of them.
import { AsyncLocalStorage } from "node:async_hooks";
import { randomUUID } from "node:crypto";

import { HttpAgent as HttpAgent1 } from "@ag-ui/client";
import { HttpAgent as HttpAgent0 } from "@ag-ui/client-0";
import { ChatClient, fetchServerSentEvents } from "@tanstack/ai-client";

import { resumingFetch } from "./resuming-fetch.mjs";

const QUICK = { delayMs: 1, maxAttempts: 50 };

/**
 * A run with AG-UI's own client. Returns its events, the texts of the new assistant messages, all
 * messages, the RUN_ERROR if there was one, and the thrown error.
 */
async function runAgUi(
  HttpAgent,
  endpoint,
  text,
  {
    runId = randomUUID(),
    threadId = randomUUID(),
    messages = [],
    headers = {},
    onEvent,
    fetch,
  } = {},
) {
  const user = { id: "u1", role: "user", content: text };
  const agent = new HttpAgent({
    url: endpoint,
    threadId,
    headers,
    fetch: fetch ?? resumingFetch(QUICK),
    initialMessages: [user, ...messages],
  });
  const events = [];
  let thrown;
  const subscriber = {
    onEvent: ({ event }) => {
      events.push(event);
      onEvent?.(event);
    },
  };
  try {
    await agent.runAgent({ runId }, subscriber);
  } catch (error) {
    thrown = error;
  }
  const answer = agent.messages.filter((m) => m.role === "assistant").map((m) => m.content ?? "");
  return {
    runId,
    threadId,
    events,
    answer,
    messages: agent.messages,
    error: events.find((e) => e.type === "RUN_ERROR"),
    thrown,
  };
}

async function runTanStack(
  endpoint,
  text,
  { threadId = randomUUID(), headers = {}, onEvent, fetch } = {},
) {
  const events = [];
  let thrown;
  const options = { headers, reconnect: QUICK, ...(fetch ? { fetchClient: fetch } : {}) };
  const client = new ChatClient({
    threadId,
    connection: fetchServerSentEvents(endpoint, options),
    onChunk: (event) => {
      events.push(event);
      onEvent?.(event);
    },
    onError: (error) => (thrown = error),
  });
  await client.sendMessage(text);
  const answer = answerOf(client.getMessages());
  // A RUN_ERROR without our metadata was made by the client from a thrown error.
  const error = events.find((e) => e.type === "RUN_ERROR");
  const runId = events.find((e) => e.type === "RUN_STARTED")?.runId;
  return {
    runId,
    threadId,
    events,
    answer,
    messages: client.getMessages(),
    error,
    thrown: error?.metadata?.capstan ? undefined : thrown,
    client,
  };
}

/** The texts of TanStack's assistant messages. */
export const answerOf = (messages) =>
  messages
    .filter((m) => m.role === "assistant")
    .map((m) =>
      m.parts
        .filter((p) => p.type === "text")
        .map((p) => p.content)
        .join(""),
    )
    .filter((text) => text !== "");

export const clients = {
  "@ag-ui/client 1.0.0": { isV1: true, run: (...args) => runAgUi(HttpAgent1, ...args) },
  "@ag-ui/client 0.0.59": { run: (...args) => runAgUi(HttpAgent0, ...args) },
  "@tanstack/ai-client": { isTanStack: true, run: runTanStack },
};

const hearing = new AsyncLocalStorage();
for (const level of ["warn", "error"]) {
  const plain = console[level];
  console[level] = (...args) => hearing.getStore()?.push(args.join(" ")) ?? plain(...args);
}

/** The errors that clients log in the calling test. Tests run in parallel. */
export function listen() {
  const said = [];
  hearing.enterWith(said);
  return said;
}

export const types = (events) => events.map((event) => event.type);
export const tokens = (n) => Array.from({ length: n }, (_, i) => `tok${i + 1} `).join("");
/** Our members of a RUN_ERROR, wherever this client line has them. */
export const capstan = (event) => event.metadata.capstan;
