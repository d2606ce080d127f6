// What the servers in JavaScript say: the deltas of a run, as an AI SDK server sends them, one at a
// time.
export const event = (text) => `data: {"type":"text-delta","id":"1","delta":"${text}"}\n\n`;

export async function* tokens(count) {
  for (let n = 1; n <= count; n++) yield event(`tok${n} `);
  yield "data: [DONE]\n\n";
}

export const SSE = { "content-type": "text/event-stream", "cache-control": "no-cache" };

export const port = Number(process.argv[2]);
