// OpenAI's published SDK, and the gateway's list of runs.
import OpenAI from "openai";

/** A client with its retries on, as they are by default. */
export function clientFor(url, options = {}) {
  return new OpenAI({ apiKey: "sk-local", baseURL: `${url}/v1`, ...options });
}

/** A fetch that counts what reaches the server. */
export function counting() {
  const sent = [];
  const counted = (input, init) => {
    sent.push({
      url: String(input),
      retry: new Headers(init.headers).get("x-stainless-retry-count"),
    });
    return fetch(input, init);
  };
  return { sent, fetch: counted };
}

/** The runs in the journal, newest first. */
export async function runsOf(url) {
  const response = await fetch(`${url}/v1/streams?limit=1000`);
  return (await response.json()).streams;
}

/** All items of an iterable, and the error that it throws at its end. */
export async function drain(iterable) {
  const events = [];
  try {
    for await (const event of iterable) events.push(event);
  } catch (error) {
    return { events, error };
  }
  return { events };
}

export const chat = (text, more = {}) => ({
  model: "demo",
  messages: [{ role: "user", content: text }],
  ...more,
});
export const textOf = (chunks) =>
  chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
export const deltasOf = (events) =>
  events
    .filter((event) => event.type === "response.output_text.delta")
    .map((event) => event.delta)
    .join("");
