// AG-UI's own client does not resume. With this `fetch` it does: after a cut, the same POST is sent
// with the id of the last event. docs/ag-ui.md shows it.

/**
 * A `fetch` whose event streams survive broken connections. With `comeBack`, a run that waits for
 * its client (RUN_ERROR of severity TRANSIENT) is continued as well, after the wait that it names.
 */
export function resumingFetch({
  delayMs = 250,
  maxAttempts = 5,
  comeBack = false,
  fetch = globalThis.fetch,
} = {}) {
  return async (url, init) => {
    const first = await fetch(url, init);
    const type = first.headers.get("content-type") ?? "";
    if (!first.ok || !first.body || !type.startsWith("text/event-stream")) return first;
    const resume = (id) =>
      fetch(url, { ...init, headers: { ...init.headers, "Last-Event-ID": id } });
    const frames = follow(first, resume, { delayMs, maxAttempts, comeBack });
    const body = ReadableStream.from(frames).pipeThrough(new TextEncoderStream());
    return new Response(body, { status: first.status, headers: first.headers });
  };
}

async function* follow(response, resume, { delayMs, maxAttempts, comeBack }) {
  let id;
  for (let attempts = 0; attempts <= maxAttempts; attempts++) {
    try {
      response ??= await resume(id);
      for await (const frame of framesOf(response)) {
        id = /^id: ?(.*)$/m.exec(frame)?.[1] ?? id;
        attempts = 0;
        yield frame;
        const wait = waitOf(frame);
        if (comeBack && wait !== undefined)
          await new Promise((resolve) => setTimeout(resolve, wait * 1000));
        else if (/"type":"RUN_(FINISHED|ERROR)"/.test(frame)) return;
      }
    } catch (error) {
      if (error?.name === "AbortError" || id === undefined) throw error;
    }
    response = undefined;
    await new Promise((resolve) => setTimeout(resolve, delayMs));
  }
  throw new Error("the run could not be resumed");
}

/** The seconds after which a waiting run may be requested again. */
function waitOf(frame) {
  if (!frame.includes('"type":"RUN_ERROR"')) return undefined;
  const { severity, retry_after } =
    JSON.parse(/^data: ?(.*)$/m.exec(frame)[1]).metadata?.capstan ?? {};
  return severity === "TRANSIENT" ? (retry_after ?? 1) : undefined;
}

/** Complete frames only. A cut frame is dropped. */
async function* framesOf(response) {
  let buffer = "";
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    buffer += text;
    for (let at; (at = buffer.indexOf("\n\n")) >= 0; buffer = buffer.slice(at + 2))
      yield buffer.slice(0, at + 2);
  }
}
