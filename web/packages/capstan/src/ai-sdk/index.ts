// For `useChat`: a transport that reads on at its cursor, and the types of our data parts. The AI
// SDK itself is not needed here.
export type { CapstanData } from "./data.js";
export { type Chunk, CapstanChatTransport, type ChatTransportOptions } from "./transport.js";
