// The faces of the page, one row each. CAP uses the package's own hook. The others are subclasses
// of FaceRun.
import { AguiRun } from "./agui/run.js";
import { AiSdkRun } from "./ai-sdk/run.js";
import type { FaceRun } from "./face-run.js";
import { OpenAIRun } from "./openai/run.js";

type Open = new (...args: ConstructorParameters<typeof FaceRun>) => FaceRun;

export const FACES = {
  cap: { label: "CAP", Run: undefined },
  "ag-ui": { label: "AG-UI", Run: AguiRun },
  openai: { label: "OpenAI", Run: OpenAIRun },
  "ai-sdk": { label: "AI SDK", Run: AiSdkRun },
} satisfies Record<string, { label: string; Run: Open | undefined }>;

export type Face = keyof typeof FACES;

export function isFace(name: unknown): name is Face {
  return typeof name === "string" && Object.hasOwn(FACES, name);
}
