// Fake providers on loopback, which record their requests. The first answer calls a tool or asks a
// question, later ones answer.
import { createServer } from "node:http";

const ARGUMENTS = '{"city":"Rome"}';

const openai = {
  config: (url) => `kind = "openai"\nurl = "${url}/v1"\nmodel = "m"\n`,
  calls: [
    { model: "m", choices: [{ index: 0, delta: { content: "Let me look." } }] },
    {
      choices: [
        {
          index: 0,
          delta: {
            tool_calls: [
              { index: 0, id: "call_1", function: { name: "weather", arguments: ARGUMENTS } },
            ],
          },
        },
      ],
    },
    { choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }], usage: {} },
  ],
  answer: (text) => [
    { choices: [{ index: 0, delta: { content: text }, finish_reason: "stop" }], usage: {} },
  ],
  /** The tools and the result in a request. */
  seen: (body) => ({
    tools: (body.tools ?? []).map((tool) => tool.function.name),
    context: body.messages
      .filter((m) => m.role === "system")
      .map((m) => m.content)
      .join(),
    result: body.messages.findLast((m) => m.role === "tool" && m.tool_call_id === "call_1")
      ?.content,
    called: body.messages.some((m) => m.tool_calls?.some((call) => call.id === "call_1")),
  }),
};

const anthropic = {
  config: (url) => `kind = "anthropic"\nurl = "${url}"\nmodel = "m"\n`,
  calls: [
    { type: "message_start", message: { model: "m" } },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Let me look." } },
    {
      type: "content_block_start",
      index: 1,
      content_block: { type: "tool_use", id: "call_1", name: "weather" },
    },
    {
      type: "content_block_delta",
      index: 1,
      delta: { type: "input_json_delta", partial_json: ARGUMENTS },
    },
    { type: "content_block_stop", index: 1 },
    { type: "message_delta", delta: { stop_reason: "tool_use" } },
  ],
  answer: (text) => [
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text } },
    { type: "message_delta", delta: { stop_reason: "end_turn" } },
  ],
  seen: (body) => {
    const blocks = body.messages.flatMap((m) => m.content);
    return {
      tools: (body.tools ?? []).map((tool) => tool.name),
      context: body.system ?? "",
      result: blocks.find((block) => block.type === "tool_result" && block.tool_use_id === "call_1")
        ?.content,
      called: blocks.some((block) => block.type === "tool_use" && block.id === "call_1"),
    };
  },
};

const agui = {
  config: (url) => `kind = "ag-ui"\nurl = "${url}"\n`,
  calls: [
    { type: "RUN_STARTED", threadId: "t", runId: "r" },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "Let me look." },
    { type: "TOOL_CALL_START", toolCallId: "call_1", toolCallName: "weather" },
    { type: "TOOL_CALL_ARGS", toolCallId: "call_1", delta: ARGUMENTS },
    { type: "TOOL_CALL_END", toolCallId: "call_1" },
    { type: "RUN_FINISHED", threadId: "t", runId: "r" },
  ],
  asks: [
    {
      type: "RUN_FINISHED",
      threadId: "t",
      runId: "r",
      outcome: {
        type: "interrupt",
        interrupts: [{ id: "i1", reason: "approval", message: "Send it?" }],
      },
    },
  ],
  answer: (text) => [
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: text },
    { type: "RUN_FINISHED", threadId: "t", runId: "r" },
  ],
  seen: (body) => ({
    tools: body.tools.map((tool) => tool.name),
    context: body.context.map((fact) => `${fact.description}: ${fact.value}`).join(),
    result: body.messages.find((m) => m.role === "tool" && m.toolCallId === "call_1")?.content,
    called: body.messages.some((m) => m.toolCalls?.some((call) => call.id === "call_1")),
  }),
};

export const providers = { openai, anthropic, "ag-ui": agui };

/** Starts a provider. `script(nth, body)` returns the events of the nth answer, from 0. */
export async function startProvider(script) {
  const bodies = [];
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    bodies.push(JSON.parse(Buffer.concat(parts).toString()));
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const event of script(bodies.length - 1, bodies.at(-1)))
      response.write(`data: ${JSON.stringify(event)}\n\n`);
    response.end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, bodies, stop: () => server.close() };
}
