// Tasks with the official SDK of A2A.
import { randomUUID } from "node:crypto";

import {
  ClientFactory,
  ClientFactoryOptions,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from "@a2a-js/sdk/client";

export const WORKING = 2,
  COMPLETED = 3,
  FAILED = 4,
  CANCELED = 5,
  INPUT_REQUIRED = 6;
const ROLE_USER = 1;
export const transports = {
  "JSON-RPC": JsonRpcTransportFactory,
  "HTTP+JSON": RestTransportFactory,
};

const part = (content) => ({ content, metadata: undefined, filename: "", mediaType: "" });
/** A message in the SDK's form. */
export const message = (text, more = {}) => ({
  messageId: randomUUID(),
  contextId: "",
  taskId: "",
  role: ROLE_USER,
  parts: [part({ $case: "text", value: text })],
  metadata: undefined,
  extensions: [],
  referenceTaskIds: [],
  ...more,
});
export const request = (said) => ({
  tenant: "",
  message: said,
  configuration: undefined,
  metadata: undefined,
});
export const textOf = (parts) =>
  parts.map((p) => (p.content?.$case === "text" ? p.content.value : "")).join("");

/** A client that reads the agent's card. */
export function clientAt(url, Transport, fetchImpl) {
  const transport = new Transport(fetchImpl && { fetchImpl });
  const options = { transports: [transport], preferredTransports: [transport.protocolName] };
  return new ClientFactory(
    ClientFactoryOptions.createFrom(ClientFactoryOptions.default, options),
  ).createFromUrl(url);
}

/** Folds the events of a stream into one task. `seen` keeps the state from before a cut. */
export async function fold(events, seen = { artifact: "", states: [] }) {
  for await (const event of events) {
    const { $case, value } = event.payload ?? event;
    if ($case === "task") {
      seen.id = value.id;
      seen.artifact = value.artifacts.map((artifact) => textOf(artifact.parts)).join("");
      seen.states.push(value.status.state);
    } else if ($case === "artifactUpdate") {
      seen.artifact = (value.append ? seen.artifact : "") + textOf(value.artifact.parts);
    } else {
      seen.states.push(value.status.state);
      seen.status = value.status;
    }
  }
  return seen;
}

/**
 * Sends a message and reads its task to the end, as any client must: after a cut it subscribes
 * again, and it gets a task that has ended.
 */
export async function readToTheEnd(client, said, onText = () => {}) {
  const seen = { artifact: "", states: [] };
  const isOver = () => seen.states.length > 0 && seen.states.at(-1) !== WORKING;
  const noted = async function* (events) {
    for await (const event of events) {
      yield event;
      await onText(seen);
    }
  };
  let cuts = 0;
  for (
    let events = client.sendMessageStream(request(said));
    !isOver();
    events = client.resubscribeTask({ tenant: "", id: seen.id })
  ) {
    try {
      await fold(noted(events), seen);
      if (!isOver()) throw new Error("it ended before the task did");
    } catch (error) {
      if (seen.id === undefined) throw error;
      cuts += 1;
      const task = await client.getTask({ tenant: "", id: seen.id }).catch(() => undefined);
      if (task !== undefined && task.status.state !== WORKING) {
        seen.artifact = task.artifacts.map((artifact) => textOf(artifact.parts)).join("");
        seen.states.push(task.status.state);
      }
    }
  }
  return { ...seen, cuts };
}
