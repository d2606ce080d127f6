// One run in the AI SDK's face, over the transport that resumes at the last chunk.
import { parseAGUIError, type ResumeEntry } from "capstan";
import { CapstanChatTransport } from "capstan/ai-sdk";

import { FaceRun, type Message } from "../face-run.js";
import { isObject, isText } from "../json.js";
import { type Chunk, ChunkTranscript } from "./transcript.js";

export class AiSdkRun extends FaceRun {
  protected transcript = new ChunkTranscript();
  #fault: unknown;
  #reason: string | undefined;

  protected async read(signal: AbortSignal): Promise<string> {
    this.transcript = new ChunkTranscript();
    const chunks = await this.#open(signal);
    this.canGoOn = true;
    const reader = chunks.getReader();
    for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read())
      this.#take(value);
    this.canGoOn = false;
    return this.#reason ?? "completed";
  }

  async #open(signal: AbortSignal): Promise<ReadableStream<unknown>> {
    const { headers, maxWait } = this.options;
    const transport = new CapstanChatTransport({
      api: `${this.route}/ai-sdk/chat`,
      headers,
      maxWait,
      fetch: this.fetch,
      onNotice: this.notice,
    });
    const { conversationId: chatId, messages, resume } = this.input;
    if (this.streamId === undefined) {
      return transport.sendMessages({
        chatId,
        messages: uiMessages(messages, resume),
        trigger: "submit-message",
        messageId: undefined,
        abortSignal: signal,
      });
    }
    const chunks = await transport.reconnectToStream({ chatId, abortSignal: signal });
    if (!chunks) throw new Error("The answer has expired.");
    return chunks;
  }

  #take(chunk: unknown): void {
    this.soon();
    if (!isObject(chunk) || !isText(chunk["type"])) return this.transcript.raw(chunk);
    const { type, data } = chunk as Chunk;
    this.options.onMark(
      type === "finish" || type === "abort" ? "close" : type === "text-delta" ? "delta" : "event",
      type,
    );
    this.transcript.take(chunk as Chunk);
    if (type === "data-capstan-error") this.#fault = data;
    if (type === "data-capstan-close" && isObject(data) && isText(data["reason"]))
      this.#reason = data["reason"];
    if (type === "abort") this.#reason = "cancelled";
    if (type === "finish") this.#reason ??= reasonOf(chunk["finishReason"]);
    if (type === "error") this.#fail(chunk["errorText"]);
  }

  #fail(sentence: unknown): never {
    this.canGoOn = false;
    throw parseAGUIError(this.#fault) ?? new Error(isText(sentence) ? sentence : "the run failed");
  }
}

function reasonOf(finishReason: unknown): string {
  return isText(finishReason) && finishReason !== "stop" ? finishReason : "completed";
}

/**
 * The chat in the form of the AI SDK. An answer to a question is a tool's output, in the message
 * with the question.
 */
function uiMessages(messages: readonly Message[], resume: readonly ResumeEntry[] = []): object[] {
  const said = messages.map(({ id, role, content }) => ({
    id,
    role,
    parts: [{ type: "text", text: content }] as object[],
  }));
  if (resume.length === 0) return said;
  const last = said.at(-1)?.role === "assistant" ? said.pop() : undefined;
  const asked = {
    id: last?.id ?? "asked",
    role: "assistant",
    parts: [...(last?.parts ?? []), { type: "step-start" }, ...resume.map(outputOf)],
  };
  return [...said, asked];
}

function outputOf({ interruptId: toolCallId, status, payload }: ResumeEntry): object {
  const common = { type: "tool-interrupt", toolCallId, input: {} };
  return status === "resolved"
    ? { ...common, state: "output-available", output: payload ?? null }
    : { ...common, state: "output-error", errorText: "no answer" };
}
