// A run in the AG-UI face: events folded into the blocks that the CAP face gives, over resumableFetch.
import { type Block, CAPRuntimeError, Decoder, type Fetch, newId, type Notice, parseAGUIError, resumableFetch, type ResumeEntry, viewEvent } from "capstan";

export interface AguiRun {
  url: string;
  headers: Record<string, string>;
  threadId: string;
  message: string;
  /** Answers to what the last run asked, in place of a message. */
  resume?: readonly ResumeEntry[];
  fetch: Fetch;
  signal: AbortSignal;
  onNotice: (notice: Notice) => void;
  onEvent: (event: AguiEvent) => void;
}

export type AguiEvent = Record<string, unknown> & { type: string };

/** Says something; calls `onEvent` for each event. Throws what a RUN_ERROR or a refusal says. */
export async function runAgui(run: AguiRun): Promise<void> {
  const response = await resumableFetch({ fetch: run.fetch, onNotice: run.onNotice })(run.url, {
    method: "POST",
    headers: { ...run.headers, "content-type": "application/json", accept: "text/event-stream" },
    body: JSON.stringify({
      threadId: run.threadId,
      runId: newId(),
      messages: run.resume ? [] : [{ id: newId(), role: "user", content: run.message }],
      ...(run.resume ? { resume: run.resume } : {}),
      tools: [],
      context: [],
      state: {},
      forwardedProps: {},
    }),
    signal: run.signal,
  });
  if (!response.ok || !response.body) throw await refusal(response);
  for await (const event of events(response.body)) {
    run.onEvent(event);
    if (event.type === "RUN_ERROR") throw parseAGUIError(event) ?? new Error("the run failed");
  }
}

async function refusal(response: Response): Promise<unknown> {
  const body = await response.text();
  const told = parseAGUIError(body);
  if (response.status === 404 && (told === null || told.kind === "route_not_found")) {
    const message = "This gateway does not serve the AG-UI face. Choose CAP, or update the gateway.";
    return { code: "CAPABILITY_NOT_FOUND", message, http_status: 404 };
  }
  return told ?? new CAPRuntimeError({ status: response.status });
}

async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<AguiEvent> {
  const decoder = new Decoder();
  const reader = body.getReader();
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    if (value) decoder.push(value);
    for (let frame = decoder.take(); frame; frame = decoder.take()) yield JSON.parse(frame.data) as AguiEvent;
  }
}

function interruptsOf(event: AguiEvent): unknown[] {
  const outcome = event["outcome"] as { type?: string; interrupts?: unknown[] } | undefined;
  return outcome?.type === "interrupt" ? (outcome.interrupts ?? []) : [];
}

/** The blocks of a run, folded. Text is kept by message, so that a snapshot can take part of it back. */
export class AguiTranscript {
  #blocks: { id: string; block: Block }[] = [];
  #seq = 0;

  take(event: AguiEvent): void {
    this.#seq += 1;
    switch (event.type) {
      case "TEXT_MESSAGE_CONTENT":
        return this.#say(String(event["messageId"]), String(event["delta"] ?? ""));
      case "REASONING_MESSAGE_CONTENT":
        return this.#show({ type: "THOUGHT_TRACE", data: { thought: String(event["delta"] ?? "") } });
      case "MESSAGES_SNAPSHOT":
        return this.#snapshot(event["messages"]);
      case "RUN_FINISHED":
        for (const data of interruptsOf(event)) this.#show({ type: "INTERRUPT", data });
        return;
      case "CUSTOM":
        return this.#custom(String(event["name"]), event["value"]);
    }
  }

  #say(id: string, delta: string): void {
    const found = this.#blocks.find((entry) => entry.id === id);
    if (found?.block.type === "text") found.block = { ...found.block, text: found.block.text + delta };
    else this.#blocks.push({ id, block: { type: "text", seq: this.#seq, text: delta } });
  }

  #show(event: Record<string, unknown>): void {
    this.#blocks.push({ id: `event-${this.#seq}`, block: { type: "event", seq: this.#seq, event, view: viewEvent(event) } });
  }

  #custom(name: string, value: unknown): void {
    if (typeof value !== "object" || value === null) return;
    const raw = value as Record<string, unknown>;
    if (name === "capstan.warning") {
      const error = { code: String(raw["code"]), message: String(raw["message"]), severity: "WARNING" } as const;
      this.#blocks.push({ id: `warning-${this.#seq}`, block: { type: "warning", seq: this.#seq, error } });
    } else if (viewEvent(raw).type !== "other") this.#show(raw);
  }

  #snapshot(messages: unknown): void {
    const texts = new Map((Array.isArray(messages) ? messages : []).map((m: Record<string, unknown>) => [m["id"], m["content"]]));
    for (const entry of this.#blocks) {
      const text = texts.get(entry.id);
      if (entry.block.type === "text") entry.block = { ...entry.block, text: typeof text === "string" ? text : "" };
    }
  }

  get blocks(): readonly Block[] {
    return this.#blocks.map(({ block }) => block);
  }

  get text(): string {
    return this.blocks.map((block) => (block.type === "text" ? block.text : "")).join("");
  }
}
