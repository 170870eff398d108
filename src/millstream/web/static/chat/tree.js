// A conversation as data. Messages form a tree, as an edited question or another answer is a branch beside the old one;
// what is shown is the path from the root to the chosen leaf. Everything here is plain JSON.

/**
 * @typedef {{id: string, parent: string|null, role: "user"|"assistant"|"tool", content: string, created: number,
 *   reasoning?: string, calls?: {id: string, name: string, arguments: string}[], callId?: string, model?: string,
 *   state?: "open"|"done"|"stopped"|"failed", finish?: string|null, refusal?: string, usage?: object|null,
 *   firstTokenSeconds?: number|null, decodeSeconds?: number|null, warning?: string|null,
 *   failure?: {title: string, text: string, status: number, retryAt: number|null}|null}} Message
 * @typedef {{id: string, title: string, created: number, updated: number, model: string|null, parameters: object,
 *   messages: Record<string, Message>, leaf: string|null}} Conversation
 */

const TITLE_LENGTH = 60;

/** @returns {Conversation} */
export function newConversation(model, parameters) {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, model, parameters, messages: {}, leaf: null };
}

/** An id that no other message or conversation has. `crypto.randomUUID` is missing on pages over plain HTTP. */
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Puts a message below another one (null: at the root) and chooses it. @returns {Message} */
export function add(conversation, parent, message) {
  const whole = { id: newId(), parent, created: Date.now(), content: "", ...message };
  conversation.messages[whole.id] = whole;
  conversation.leaf = whole.id;
  conversation.updated = whole.created;
  if (!conversation.title && whole.role === "user") conversation.title = titleOf(whole.content);
  return whole;
}

/** The messages that are shown, first one first. @returns {Message[]} */
export function path(conversation, leaf = conversation.leaf) {
  const found = [];
  for (let id = leaf; id !== null && conversation.messages[id]; id = conversation.messages[id].parent) {
    found.push(conversation.messages[id]);
  }
  return found.reverse();
}

/** The messages in whose place this one is, itself included, oldest first. */
export function siblings(conversation, message) {
  return Object.values(conversation.messages)
    .filter((other) => other.parent === message.parent && other.role === message.role)
    .sort((one, other) => one.created - other.created);
}

/** Shows the branch of a message: the newest path below it. */
export function choose(conversation, id) {
  let leaf = id;
  for (let below = newestBelow(conversation, id); below; below = newestBelow(conversation, leaf)) leaf = below.id;
  conversation.leaf = leaf;
}

/** Takes a message that nothing follows out again, and shows what it was an answer to. */
export function remove(conversation, message) {
  delete conversation.messages[message.id];
  conversation.leaf = message.parent;
}

/** The calls of a message that have no result on the shown path. */
export function openCalls(conversation) {
  const shown = path(conversation);
  const asking = shown.findLast((message) => message.role !== "tool");
  if (asking?.role !== "assistant" || asking.finish !== "tool_calls") return [];
  const answered = new Set(shown.filter((message) => message.role === "tool").map((message) => message.callId));
  return asking.calls.filter((call) => !answered.has(call.id));
}

/** Where nothing was answered at all. */
export function isEmpty(message) {
  return !message.content && !message.reasoning && !message.calls?.length;
}

function newestBelow(conversation, id) {
  return Object.values(conversation.messages)
    .filter((message) => message.parent === id)
    .sort((one, other) => other.created - one.created)[0];
}

function titleOf(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  return line.length <= TITLE_LENGTH ? line : `${line.slice(0, TITLE_LENGTH - 1).trimEnd()}…`;
}
