// The answers that are being written: they go on while the person looks at another conversation.

import { complete } from "./completion.js";

const SAVE_MILLISECONDS = 1000;

export class Runs {
  #store;
  #running = new Map();

  constructor(store) {
    this.#store = store;
    // What came so far is kept when the page is left.
    addEventListener("pagehide", () => this.#running.forEach(({ conversation }) => store.put(conversation)));
  }

  /** The conversation with an id, if an answer of it is being written. */
  conversation(id) {
    return this.#running.get(id)?.conversation ?? null;
  }

  /** Ends the answer of a conversation; the server stops generating, as the connection closes. */
  stop(id) {
    this.#running.get(id)?.controller.abort();
  }

  /** Runs a request into a message of a conversation; returns its failure. `changed` is told of each piece. */
  async run(conversation, message, body, changed) {
    const controller = new AbortController();
    this.#running.set(conversation.id, { conversation, controller });
    const saving = setInterval(() => this.#store.put(conversation), SAVE_MILLISECONDS);
    try {
      return await complete(body, message, { signal: controller.signal, changed });
    } finally {
      clearInterval(saving);
      this.#running.delete(conversation.id);
    }
  }
}
