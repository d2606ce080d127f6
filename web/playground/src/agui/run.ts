// One run in the AG-UI face: the same bytes each time, from the cursor on, over resumableFetch.
import { newId, parseAGUIError, resumableFetch } from "capstan";

import { FaceRun, framesOf, objectOf, refusal } from "../face-run.js";
import { isObject, isText } from "../json.js";
import { type AguiEvent, AguiTranscript } from "./transcript.js";

export class AguiRun extends FaceRun {
  protected readonly transcript = new AguiTranscript();
  /** Serialised once: another body with the same id would be a conflict. */
  readonly #body = JSON.stringify({
    threadId: this.input.conversationId,
    runId: newId(),
    messages: this.input.messages,
    ...(this.input.resume && { resume: this.input.resume }),
    tools: [],
    context: [],
    state: {},
    forwardedProps: {},
  });
  /** The id of the last event. A bare stream id means the start. */
  #cursor = this.input.streamId;
  #reason = "completed";

  protected async read(signal: AbortSignal): Promise<string> {
    // Until an event comes, a failure is the connection's.
    this.canGoOn = true;
    const response = await this.#send(signal);
    if (!response.ok || !response.body) {
      this.canGoOn = false;
      throw refusal(response.status, parseAGUIError(await response.text()), "AG-UI");
    }
    for await (const { data, id } of framesOf(response.body)) {
      this.#cursor = id || this.#cursor;
      this.#take(data);
    }
    this.canGoOn = false;
    return this.#reason;
  }

  #send(signal: AbortSignal): Promise<Response> {
    const { base, headers, maxWait } = this.options;
    const heal = resumableFetch({ fetch: this.fetch, maxWait, onNotice: this.notice });
    const cursor: Record<string, string> =
      this.#cursor === undefined ? {} : { "last-event-id": this.#cursor };
    const common = { ...headers, ...cursor, accept: "text/event-stream" };
    if (this.input.streamId !== undefined)
      return heal(`${base}/streams/${this.input.streamId}?face=ag-ui`, {
        method: "GET",
        headers: common,
        signal,
      });
    return heal(`${this.route}/ag-ui`, {
      method: "POST",
      headers: { ...common, "content-type": "application/json" },
      body: this.#body,
      signal,
    });
  }

  #take(data: string): void {
    const event = objectOf(data);
    if (event === undefined || !isText(event["type"])) this.transcript.raw(data);
    else this.#tell(event as AguiEvent);
    this.soon();
  }

  #tell(event: AguiEvent): void {
    const kind =
      event.type === "RUN_FINISHED"
        ? "close"
        : event.type === "TEXT_MESSAGE_CONTENT"
          ? "delta"
          : "event";
    this.options.onMark(kind, event.type);
    this.transcript.take(event);
    if (event.type === "RUN_FINISHED") this.#reason = reasonOf(event) ?? this.#reason;
    if (event.type === "RUN_ERROR") this.#fail(event);
  }

  #fail(event: AguiEvent): never {
    const error = parseAGUIError(event);
    this.canGoOn = error?.severity === "TRANSIENT";
    throw error ?? new Error("the run failed");
  }
}

/** The reason of the end, from the gateway's metadata. */
function reasonOf({ metadata }: AguiEvent): string | undefined {
  const ours = isObject(metadata) ? metadata["capstan"] : undefined;
  const reason = isObject(ours) ? ours["reason"] : undefined;
  return isText(reason) ? reason : undefined;
}
