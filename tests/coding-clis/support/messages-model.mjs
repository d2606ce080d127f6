// A model that speaks Anthropic's Messages and answers each request as a test says. Unlike
// `capstan fake-provider` it can answer the same request differently the second time.
import { createServer } from "node:http";

const sse = (event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
const pieces = (text) => text.match(/.{1,8}/gs) ?? [];

/** The events of an answer, from its blocks. */
function eventsOf({ blocks, hidden = 0 }, number) {
  const usage = { input_tokens: 20, output_tokens: 1 };
  const base = { type: "message", role: "assistant", model: "m", content: [] };
  const message = { id: `msg_${number}`, ...base, stop_reason: null, stop_sequence: null, usage };
  const events = [{ type: "message_start", message }];
  const delta = (index, delta) => events.push({ type: "content_block_delta", index, delta });
  for (const [index, block] of blocks.entries()) {
    const { type } = block;
    const begin = { type: "content_block_start", index };
    if (type === "thinking") {
      events.push({ ...begin, content_block: { type, thinking: "", signature: "" } });
      for (let n = 0; n < hidden; n += 1)
        delta(index, { type: "thinking_delta", thinking: "", estimated_tokens: 50 });
      for (const piece of pieces(block.thinking))
        delta(index, { type: "thinking_delta", thinking: piece });
      delta(index, { type: "signature_delta", signature: "c2lnbmF0dXJl" });
    } else if (type === "text") {
      events.push({ ...begin, content_block: { type, text: "" } });
      for (const piece of pieces(block.text)) delta(index, { type: "text_delta", text: piece });
    } else {
      const { id = `toolu_${number}_${index}`, name, input } = block;
      events.push({ ...begin, content_block: { type, id, name, input: {} } });
      for (const piece of pieces(JSON.stringify(input)))
        delta(index, { type: "input_json_delta", partial_json: piece });
    }
    events.push({ type: "content_block_stop", index });
  }
  const isCall = blocks.some((block) => block.type === "tool_use");
  const end = { stop_reason: isCall ? "tool_use" : "end_turn", stop_sequence: null };
  return [
    ...events,
    { type: "message_delta", delta: end, usage: { output_tokens: 60 } },
    { type: "message_stop" },
  ];
}

/** How many events an answer has up to this one, that one included. */
const upTo = (events, [part, nth]) => {
  let found = 0;
  for (const [index, event] of events.entries())
    if (JSON.stringify(event).includes(part) && ++found === nth) return index + 1;
  throw new Error(`no event ${nth} with ${part}`);
};

/**
 * Starts one. `answer` gives for a request and its number the blocks, and `cut` or `silent`: the
 * last event before the connection ends or falls silent, as a text in it and its number.
 * @param {(body: any, number: number) => { blocks: any[], hidden?: number, interval?: number,
 * cut?: [string, number], silent?: [string, number] }} answer
 */
export async function startMessagesModel(answer) {
  const requests = [];
  const server = createServer(async (incoming, outgoing) => {
    const chunks = [];
    for await (const chunk of incoming) chunks.push(chunk);
    if (!incoming.url.startsWith("/v1/messages?") && incoming.url !== "/v1/messages")
      return outgoing.writeHead(404).end("{}");
    const body = JSON.parse(Buffer.concat(chunks).toString());
    requests.push({ body, headers: incoming.headers });
    const said = answer(body, requests.length);
    const events = eventsOf(said, requests.length);
    const place = said.cut ?? said.silent;
    const last = place ? upTo(events, place) : events.length;
    outgoing.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
    for (const event of events.slice(0, last)) {
      if (outgoing.destroyed) return;
      outgoing.write(sse(event));
      await new Promise((resolve) => setTimeout(resolve, said.interval ?? 2));
    }
    if (said.cut) outgoing.destroy();
    else if (!said.silent) outgoing.end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { url: `http://127.0.0.1:${server.address().port}`, requests, stop };
}

/** How many results of tools a request has. */
export const results = (body) => JSON.stringify(body.messages).split('"tool_result"').length - 1;
