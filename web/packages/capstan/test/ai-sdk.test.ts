// The transport for `useChat`, with the AI SDK's own chat and the real gateway, through cuts at
// every chunk.
import { AbstractChat, type ChatState, type UIMessage } from "ai";
import { afterAll, beforeAll, expect, test } from "vitest";

// @ts-expect-error: plain JavaScript
import { startCutter } from "../../ag-ui-tests/support/cutter.mjs";
// @ts-expect-error: plain JavaScript
import { startGateway } from "../../../testing/gateway.mjs";
import { CAPRuntimeError } from "../src/errors.js";
import type { StreamError } from "../src/generated/wire.js";
import type { Notice } from "../src/notice.js";
import {
  type CapstanData,
  CapstanChatTransport,
  type Chunk,
  type ChatTransportOptions,
} from "../src/ai-sdk/index.js";

type Message = UIMessage<unknown, CapstanData>;

class State implements ChatState<Message> {
  status: ChatState<Message>["status"] = "ready";
  error: Error | undefined = undefined;
  messages: Message[] = [];
  pushMessage = (message: Message) => void this.messages.push(message);
  popMessage = () => void this.messages.pop();
  replaceMessage = (at: number, message: Message) =>
    void (this.messages[at] = structuredClone(message));
  snapshot = <T>(value: T): T => structuredClone(value);
}

class Chat extends AbstractChat<Message> {
  constructor(options: ChatTransportOptions) {
    super({
      id: crypto.randomUUID(),
      transport: new CapstanChatTransport(options),
      state: new State(),
    });
  }

  get text(): string {
    const parts = this.messages
      .filter((message) => message.role === "assistant")
      .flatMap((message) => message.parts);
    return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
  }
}

const QUICK = { backoff: { first: 1, max: 5 } };
const tokens = (n: number) => Array.from({ length: n }, (_, at) => `tok${at + 1} `).join("");

let gateway: { url: string; stop: () => Promise<void> };
beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(() => gateway?.stop());

test("an answer that is cut after every chunk arrives complete", async () => {
  const cutter = await startCutter(gateway.url, () => 2);
  const notices: Notice[] = [];
  const chat = new Chat({
    api: `${cutter.url}/v1/ai-sdk/chat`,
    ...QUICK,
    onNotice: (notice) => notices.push(notice),
  });
  await chat.sendMessage({ text: "/tokens 20" });
  await cutter.stop();
  expect([chat.status, chat.error, chat.text]).toEqual(["ready", undefined, tokens(20)]);
  expect(notices.filter((notice) => notice.type === "resumed").length).toBeGreaterThan(5);
  // Each request resumed at its cursor.
  expect(cutter.log.slice(1).every((cursor: string | undefined) => cursor !== undefined)).toBe(
    true,
  );
});

test("a fault comes in types, and a refusal is one", async () => {
  const faults: StreamError[] = [];
  const chat = new Chat({
    api: `${gateway.url}/v1/ai-sdk/chat`,
    onFault: (fault) => faults.push(fault),
  });
  await chat.sendMessage({ text: "/fault content_refused" });
  expect([chat.status, faults.map((fault) => fault.code)]).toEqual(["error", ["content_refused"]]);
  const nobody = new Chat({ api: `${gateway.url}/v1/agents/nobody/ai-sdk/chat` });
  await nobody.sendMessage({ text: "Hi" });
  expect(nobody.error).toBeInstanceOf(CAPRuntimeError);
  expect((nobody.error as CAPRuntimeError).code).toBe("agent_not_found");
});

test("a chat comes back, and is stopped for all", async () => {
  const api = `${gateway.url}/v1/ai-sdk/chat`;
  const transport = new CapstanChatTransport({ api });
  expect(await transport.reconnectToStream({ chatId: "nobody knows" })).toBeNull();
  const chat = new Chat({ api });
  const sent = chat.sendMessage({ text: "/hang" });
  const found = async (): Promise<ReadableStream<Chunk>> =>
    (await transport.reconnectToStream({ chatId: chat.id })) ?? found();
  const back = await found();
  await transport.stopRun(chat.id);
  await sent;
  const types: string[] = [];
  for await (const chunk of back) types.push(chunk.type);
  expect([chat.status, ...types.slice(-2)]).toEqual(["ready", "abort", "finish"]);
});
