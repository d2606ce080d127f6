// A chat of the AI SDK without a page: the published class with the simplest state.
import { randomUUID } from "node:crypto";

/** The tested versions: always 7, older ones in the soak. */
const versions = {
  "ai 7": "ai",
  ...(process.env.CAPSTAN_SOAK ? { "ai 6": "ai-6", "ai 5": "ai-5" } : {}),
};
export const sdks = await Promise.all(
  Object.entries(versions).map(async ([name, module]) => ({ name, sdk: await import(module) })),
);

class State {
  status = "ready";
  error = undefined;

  constructor(messages) {
    this.messages = messages;
  }

  pushMessage = (message) => void (this.messages = [...this.messages, message]);
  popMessage = () => void (this.messages = this.messages.slice(0, -1));
  replaceMessage = (at, message) =>
    void (this.messages = this.messages.with(at, structuredClone(message)));
  snapshot = (value) => structuredClone(value);
}

/**
 * A chat at `api`. Data parts outside of messages are in `data`.
 * @param sdk a version of the AI SDK
 */
export function chatAt(
  sdk,
  api,
  {
    id = randomUUID(),
    messages = [],
    headers,
    body,
    fetch,
    transport = new sdk.DefaultChatTransport({ api, headers, body, fetch }),
    ...options
  } = {},
) {
  const data = [];
  class Chat extends sdk.AbstractChat {
    constructor() {
      super({
        id,
        transport,
        state: new State(messages),
        onData: (part) => data.push(part),
        ...options,
      });
    }
  }
  return Object.assign(new Chat(), { data });
}

export const textOf = (message) =>
  message.parts
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("");
export const answers = (chat) => chat.messages.filter((message) => message.role === "assistant");
export const tokens = (n) => Array.from({ length: n }, (_, at) => `tok${at + 1} `).join("");

/** Polls until the condition holds, because the chat has no event for it. */
export async function until(holds) {
  for (;;) {
    if (await holds()) return;
    await new Promise((resolve) => setImmediate(resolve));
  }
}
