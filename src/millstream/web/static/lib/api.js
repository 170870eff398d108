// Requests to the server this page came from, and what their failures mean in words.

import { seconds } from "./format.js";
import { key } from "./key.js";

/** What went wrong: the server's own words, and what a program needs to know. `status` is 0 if there was no answer. */
export class Failure extends Error {
  constructor(message, { status = 0, code = null, param = null, retryAfter = null, begun = false } = {}) {
    super(message);
    Object.assign(this, { status, code, param, retryAfter, begun });
  }
}

/**
 * One request. Its answer is a Response with a status of success.
 * Raises Failure; and AbortError if the signal says so.
 */
export async function ask(path, { method = "GET", body, signal } = {}) {
  const headers = {};
  if (key()) headers.authorization = `Bearer ${key()}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method, headers, signal, cache: "no-store", credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The server does not answer. Is it still running?");
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

/** The names of the models that are served. */
export async function models(signal) {
  const body = await (await ask("/v1/models", { signal })).json();
  return body.data.map((model) => ({ id: String(model.id), contextLength: model.context_length ?? null }));
}

/** The failure that a stream's `error` member tells. */
export function streamFailure(error) {
  return new Failure(String(error.message ?? "The answer failed."), { code: error.code ?? null, begun: true });
}

/** A failure as a title and a sentence for the person. */
export function words(failure) {
  const message = failure.message;
  if (failure.status === 401) return { title: "The server asks for a key", text: message };
  if (failure.status === 403) return { title: "The key may not do this", text: message };
  if (failure.status === 404) return { title: "Not found", text: message };
  if (failure.status === 429) return { title: "Too much at once", text: `${message} ${again(failure)}`.trim() };
  if (failure.status === 503) return { title: "The server is not ready", text: `${message} ${again(failure)}`.trim() };
  if (failure.status >= 500) return { title: "The server failed", text: message };
  if (failure.status >= 400) {
    return { title: "The request was refused", text: failure.param ? `${message} (${failure.param})` : message };
  }
  return { title: failure.begun ? "The answer broke off" : "No connection", text: message };
}

function again(failure) {
  const told = failure.retryAfter === null || /try again in \d/i.test(failure.message);
  return told ? "" : `It asks to wait ${seconds(failure.retryAfter)}.`;
}

async function failureOf(response) {
  const header = Number.parseFloat(response.headers.get("retry-after") ?? "");
  const about = { status: response.status, retryAfter: Number.isFinite(header) ? header : null };
  let error;
  try {
    ({ error } = await response.json());
  } catch {
    error = null; // a proxy's page
  }
  const message = error?.message ? String(error.message) : `The server answered with status ${response.status}.`;
  return new Failure(message, { ...about, code: error?.code ?? null, param: error?.param ?? null });
}
