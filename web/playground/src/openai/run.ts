// One run in OpenAI's Responses, over the fetch that resumes by sequence number.
import { parseAGUIError, type ResumeEntry } from "capstan";
import { resumableFetch } from "capstan/openai";

import { FaceRun, framesOf, objectOf, refusal } from "../face-run.js";
import { isObject, isText } from "../json.js";
import { type ResponseEvent, ResponseTranscript } from "./transcript.js";

const LAST = ["response.completed", "response.incomplete"];

export class OpenAIRun extends FaceRun {
  protected transcript = new ResponseTranscript();

  protected async read(signal: AbortSignal): Promise<string> {
    this.transcript = new ResponseTranscript();
    // Until an event comes, a failure is the connection's. Without an id the run cannot continue.
    const response = await this.#send(signal);
    if (!response.ok || !response.body)
      throw refusal(
        response.status,
        failureOf(objectOf(await response.text())?.["error"]),
        "OpenAI",
      );
    this.canGoOn = this.streamId !== undefined;
    let reason = "completed";
    for await (const { data } of framesOf(response.body)) reason = this.#take(data) ?? reason;
    this.canGoOn = false;
    return reason;
  }

  #send(signal: AbortSignal): Promise<Response> {
    const { base, headers, maxWait } = this.options;
    const heal = resumableFetch({
      fetch: (url, init = {}) => this.fetch(String(url), init),
      maxWait,
      onNotice: this.notice,
    });
    const common = { ...headers, "x-capstan-events": "all" };
    if (this.streamId !== undefined)
      return heal(`${base}/responses/${responseOf(this.streamId)}?stream=true`, {
        headers: common,
        signal,
      });
    return heal(`${base}/responses`, {
      method: "POST",
      headers: { ...common, "content-type": "application/json" },
      body: this.#body(),
      signal,
    });
  }

  #body(): string {
    const { conversationId, messages, isWhole, resume } = this.input;
    const { agent } = this.options;
    const said = isWhole
      ? messages.map(({ role, content }) => ({ role, content }))
      : messages.at(-1)?.content;
    const input = resume ? resume.map(outputOf) : (said ?? "");
    return JSON.stringify({
      ...(agent !== "" && { model: agent }),
      conversation: conversationId,
      input,
      stream: true,
    });
  }

  /** The reason of the end, if the event ends the run. */
  #take(data: string): string | undefined {
    const event = objectOf(data);
    this.soon();
    if (event === undefined || !isText(event["type"])) {
      this.transcript.raw(data);
      return undefined;
    }
    const type = event["type"];
    this.options.onMark(
      LAST.includes(type) ? "close" : type.endsWith("text.delta") ? "delta" : "event",
      type,
    );
    this.transcript.take(event as ResponseEvent);
    if (type === "error") this.#fail(event["error"]);
    const response = isObject(event["response"]) ? event["response"] : {};
    if (type === "response.failed") this.#fail(response["error"]);
    return LAST.includes(type) ? reasonOf(response) : undefined;
  }

  #fail(error: unknown): never {
    this.canGoOn = false;
    throw failureOf(error) ?? new Error("the run failed");
  }
}

function responseOf(streamId: string): string {
  return `resp_${streamId.replaceAll("-", "")}`;
}

/** The answer to a question, as the output of a tool. */
function outputOf({ interruptId, status, payload }: ResumeEntry): object {
  return {
    type: "function_call_output",
    call_id: interruptId,
    output: status === "resolved" ? JSON.stringify(payload ?? null) : "",
  };
}

/** OpenAI's error contains ours, because its own code is less exact. */
function failureOf(error: unknown): ReturnType<typeof parseAGUIError> {
  if (!isObject(error)) return null;
  const { type: _, kind, ...rest } = error;
  return parseAGUIError({ ...rest, code: kind ?? error["code"] });
}

function reasonOf({ status, incomplete_details: details }: Record<string, unknown>): string {
  if (status === "incomplete")
    return isObject(details) && details["reason"] === "content_filter"
      ? "content_filter"
      : "length";
  return isText(status) ? status : "completed";
}
