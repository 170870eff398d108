// Conversations as a file, and back. A file may come from anywhere: what it holds is read member by member.

import { fieldsOf } from "./parameters.js";
import { newId } from "./tree.js";

const FORMAT = "millstream-conversations";
const ROLES = ["user", "assistant", "tool"];
const STATES = ["done", "stopped", "failed"];

/** The content of a file. */
export function exported(conversations) {
  return { format: FORMAT, version: 1, conversations };
}

/**
 * The conversations of a file's text; each gets a new id, so that none that is there is overwritten.
 * Raises an Error that says in words what is wrong with the file.
 */
export function imported(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON.");
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) {
    throw new Error("The file is not an export of this page: its “format” is not “millstream-conversations”.");
  }
  if (file.version !== 1) throw new Error(`The file has version ${file.version}; this page reads version 1.`);
  return file.conversations.map(conversation);
}

function conversation(value, index) {
  const where = `Conversation ${index + 1}`;
  if (!isObject(value) || !isObject(value.messages)) throw new Error(`${where} has no messages.`);
  const entries = Object.values(value.messages).map((message, at) => readMessage(message, `${where}, message ${at + 1}`));
  const messages = Object.fromEntries(entries.map((message) => [message.id, message]));
  for (const message of entries) checkAncestors(message, messages, where);
  const leaf = typeof value.leaf === "string" && Object.hasOwn(messages, value.leaf) ? value.leaf : null;
  return {
    id: newId(), title: text(value.title), created: number(value.created), updated: number(value.updated),
    model: typeof value.model === "string" ? value.model : null, parameters: fieldsOf(value.parameters), messages,
    leaf: leaf ?? entries.at(-1)?.id ?? null,
  };
}

function readMessage(value, where) {
  if (!isObject(value) || typeof value.id !== "string" || !value.id || value.id === "__proto__") {
    throw new Error(`${where} has no id.`);
  }
  if (!ROLES.includes(value.role)) throw new Error(`${where} has an unknown role.`);
  const message = {
    id: value.id, parent: typeof value.parent === "string" ? value.parent : null, role: value.role,
    content: text(value.content), created: number(value.created),
  };
  if (value.role === "tool") return { ...message, callId: text(value.callId) };
  if (value.role === "user") return message;
  const calls = Array.isArray(value.calls) ? value.calls.filter(isObject) : [];
  return {
    ...message,
    model: text(value.model), reasoning: text(value.reasoning), refusal: text(value.refusal),
    calls: calls.map((call) => ({ id: text(call.id), name: text(call.name), arguments: text(call.arguments) })),
    state: STATES.includes(value.state) ? value.state : "stopped",
    finish: typeof value.finish === "string" ? value.finish : null, usage: usage(value.usage),
    firstTokenSeconds: seconds(value.firstTokenSeconds), decodeSeconds: seconds(value.decodeSeconds),
    warning: typeof value.warning === "string" ? value.warning : null, failure: null,
  };
}

/** A parent that is not there, or a circle of parents, would be a path without an end. */
function checkAncestors(message, messages, where) {
  const seen = new Set();
  for (let at = message; at.parent !== null; at = messages[at.parent]) {
    if (!Object.hasOwn(messages, at.parent) || seen.has(at.id)) throw new Error(`${where} is not a tree of messages.`);
    seen.add(at.id);
  }
}

function usage(value) {
  if (!isObject(value)) return null;
  const cached = isObject(value.prompt_tokens_details) ? number(value.prompt_tokens_details.cached_tokens) : 0;
  return {
    prompt_tokens: number(value.prompt_tokens), completion_tokens: number(value.completion_tokens),
    prompt_tokens_details: { cached_tokens: cached },
  };
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function text(value) {
  return typeof value === "string" ? value : "";
}

function number(value) {
  return Number.isFinite(value) && value >= 0 ? value : 0;
}

function seconds(value) {
  return Number.isFinite(value) && value >= 0 ? value : null;
}
