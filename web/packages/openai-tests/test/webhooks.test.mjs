// Webhooks: received from the real binary, and accepted by the SDK.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { test } from "node:test";

import { startGateway } from "../../../testing/gateway.mjs";
import { clientFor } from "../support/openai.mjs";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

test(
  "the end of a background response is told, and the SDK unwraps it",
  { timeout: 60_000 },
  async (t) => {
    const posted = [];
    const waiting = [];
    const receiver = createServer(async (request, response) => {
      let body = "";
      for await (const chunk of request) body += chunk;
      response.writeHead(204).end();
      const entry = { body, headers: request.headers };
      (waiting.shift() ?? ((entry) => posted.push(entry)))(entry);
    });
    await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
    t.after(() => receiver.close());
    process.env["HOOK_SECRET"] = SECRET;
    const hash = createHash("sha256").update("sk-hook").digest("hex");
    const url = `http://127.0.0.1:${receiver.address().port}/hook`;
    const members = `url = "${url}", secret_env = "HOOK_SECRET", allow_private = true`;
    const gateway = await startGateway({
      config: `[[tenants]]\nname = "acme"\nkeys = ["sha256:${hash}"]\nwebhook = { ${members} }\n`,
    });
    t.after(() => gateway.stop());
    const client = clientFor(gateway.url, { apiKey: "sk-hook", webhookSecret: SECRET });
    const next = () => posted.shift() ?? new Promise((resolve) => waiting.push(resolve));
    for (const [input, type] of [
      ["/echo hi", "response.completed"],
      ["/fault upstream_auth", "response.failed"],
    ]) {
      const response = await client.responses.create({ input, background: true });
      const { body, headers } = await next();
      const event = await client.webhooks.unwrap(body, headers);
      assert.deepEqual([event.type, event.data.id], [type, response.id]);
      await assert.rejects(client.webhooks.unwrap(body.replace("evt_", "evil"), headers));
    }
  },
);
