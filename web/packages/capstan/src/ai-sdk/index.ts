// For `useChat`: a transport that resumes at its cursor, and the types of our data parts. The AI
// SDK itself is not imported.
export type { CapstanData } from "./data.js";
export { type Chunk, CapstanChatTransport, type ChatTransportOptions } from "./transport.js";
