// The page of docs/ai-sdk.md: `useChat` with its default transport, a stop button, and test ids.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";
import { useEffect } from "react";
import { createRoot } from "react-dom/client";

const query = new URLSearchParams(location.search);
const api = `${query.get("gateway")}/v1/ai-sdk/chat`;
const chatId = query.get("chat") ?? "";
const kept = JSON.parse(sessionStorage.getItem(chatId) ?? "[]");

function Page() {
  const { messages, sendMessage, status } = useChat({
    id: chatId,
    messages: kept,
    resume: true,
    transport: new DefaultChatTransport({ api }),
  });
  useEffect(() => {
    sessionStorage.setItem(chatId, JSON.stringify(messages));
  }, [messages]);
  const stop = () =>
    void fetch(`${api}/${encodeURIComponent(chatId)}/stream`, { method: "DELETE" });
  const answers = messages.filter((message) => message.role === "assistant");
  return (
    <main data-status={status} data-answers={answers.length}>
      <p id="answer">
        {answers
          .flatMap((message) => message.parts)
          .map((part) => (part.type === "text" ? part.text : ""))}
      </p>
      <button id="ask" onClick={() => void sendMessage({ text: query.get("ask") ?? "" })}>
        Ask
      </button>
      <button id="stop" onClick={stop}>
        Stop
      </button>
    </main>
  );
}

createRoot(document.body.appendChild(document.createElement("div"))).render(<Page />);
