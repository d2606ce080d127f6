// Codex, as it is published, in front of a model that fails. It writes a file by a shell command
// and then says so: two calls of the model, if nothing breaks. The provider counts its calls.
import { places, suite } from "./support/suite.mjs";

suite("Codex", "codex", ({ row, endures }) => {
  row("nothing", {}, { without: 2, with: 2 });
  for (const place of places) {
    const without = place === "before-end" ? 2 : 3;
    const faults = [`close-mid-stream:${place}@1`];
    row(`the provider, ${place}`, { faults }, { without, with: [without, 3] });
  }
  for (const place of places) {
    const without = place === "before-end" ? 2 : 3;
    row(`the CLI's connection, ${place}`, { cutter: place }, { without, with: [2, without] });
  }
  // Codex takes these for the end of its turn.
  for (const [status, name] of [
    ["429", "limits the rate"],
    ["529", "is overloaded"],
  ]) {
    const without = status === "429" ? 1 : 3;
    row(`the provider ${name}`, { faults: [`status-${status}@1`] }, { without, with: 3 });
  }

  endures([3, 4]);
});
