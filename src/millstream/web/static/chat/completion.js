// One answer: the request, its stream folded into a message, the time it took, and how it ended.

import { Failure, ask, streamFailure, words } from "../lib/api.js";
import { readEvents } from "../lib/sse.js";

/** What is known of an answer before its first byte. */
export function openAnswer(model) {
  return {
    role: "assistant", model, content: "", reasoning: "", calls: [], refusal: "", state: "open", finish: null,
    usage: null, firstTokenSeconds: null, decodeSeconds: null, warning: null, failure: null,
  };
}

/**
 * Runs a request to its end. The message is changed as the stream comes, and `changed` is told each time; it ends in
 * one of the states done, stopped (by the signal) and failed. Returns the failure, if there was one.
 */
export async function complete(body, message, { signal, changed }) {
  const began = performance.now();
  let first = null;
  try {
    const response = await ask("/v1/chat/completions", { method: "POST", body, signal });
    message.warning = response.headers.get("x-millstream-warning");
    let ended = false;
    for await (const { data } of readEvents(response.body)) {
      if (data === "[DONE]") {
        ended = true;
        break;
      }
      const chunk = parsed(data);
      if (fold(message, chunk)) {
        first ??= performance.now();
        message.firstTokenSeconds = (first - began) / 1000;
        message.decodeSeconds = (performance.now() - first) / 1000;
      }
      changed();
    }
    if (!ended || message.finish === null) throw brokenOff();
    message.state = "done";
    return null;
  } catch (error) {
    if (signal.aborted) {
      message.state = "stopped";
      return null;
    }
    const failure = error instanceof Failure ? error : brokenOff();
    if (!(error instanceof Failure) && !(error instanceof TypeError)) console.error(error);
    message.state = "failed";
    message.failure = {
      ...words(failure), status: failure.status,
      retryAt: failure.retryAfter === null ? null : Date.now() + failure.retryAfter * 1000,
    };
    return failure;
  } finally {
    changed();
  }
}

/** Adds a chunk to a message; whether it brought something of the answer. Raises the failure that a chunk tells. */
export function fold(message, chunk) {
  if (chunk.error) throw streamFailure(chunk.error);
  if (chunk.usage) message.usage = chunk.usage;
  const choice = chunk.choices?.[0];
  if (!choice) return false;
  if (choice.finish_reason) message.finish = choice.finish_reason;
  const delta = choice.delta ?? {};
  message.content += delta.content ?? "";
  message.reasoning += delta.reasoning_content ?? "";
  message.refusal += delta.refusal ?? "";
  for (const part of delta.tool_calls ?? []) foldCall(message.calls, part);
  return Boolean(delta.content || delta.reasoning_content || delta.tool_calls?.length);
}

function foldCall(calls, { index, id, function: called }) {
  calls[index] ??= { id, name: called.name, arguments: "" };
  calls[index].arguments += called.arguments ?? "";
}

function parsed(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new Failure("The server sent something that is no part of an answer.", { begun: true });
  }
}

function brokenOff() {
  return new Failure("The connection ended in the middle of the answer. What came until then is kept.", { begun: true });
}
