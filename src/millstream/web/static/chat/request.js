// The body of `POST /v1/chat/completions`, from the shown messages and the parameters.

import { path } from "./tree.js";

/** What a conversation asks for, up to a message (null: nothing but the system prompt). */
export function requestBody(conversation, leaf, model) {
  const { system, tools, ...parameters } = conversation.parameters;
  const messages = path(conversation, leaf).map(wireMessage).filter((message) => message !== null);
  const body = {
    model,
    messages: system ? [{ role: "system", content: system }, ...messages] : messages,
    stream: true,
    stream_options: { include_usage: true },
  };
  if (tools?.length) body.tools = tools;
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined) body[name] = value;
  }
  return body;
}

function wireMessage(message) {
  if (message.role === "user") return { role: "user", content: message.content };
  if (message.role === "tool") return { role: "tool", tool_call_id: message.callId, content: message.content };
  // Calls of an answer that was stopped may be cut, and nobody ran them.
  const calls = message.finish === "tool_calls" ? message.calls : [];
  if (!message.content && !calls.length) return null;
  const wire = { role: "assistant", content: message.content || null };
  if (message.reasoning) wire.reasoning_content = message.reasoning;
  if (calls.length) {
    wire.tool_calls = calls.map(({ id, name, arguments: given }) => (
      { id, type: "function", function: { name, arguments: given } }
    ));
  }
  return wire;
}
