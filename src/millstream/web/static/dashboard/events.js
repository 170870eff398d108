// The snapshots of `/v1/events`, with a connection that comes back.

import { Failure, ask } from "../lib/api.js";
import { readEvents } from "../lib/sse.js";

const FIRST_WAIT = 1;
const LONGEST_WAIT = 15;
const PATIENCE_MILLISECONDS = 15_000;

/**
 * Reads until `stop` is called. `snapshot(value)` gets each one; `state(name, failure, wait)` tells how it is:
 * connecting, live, waiting (so many seconds, then again) or refused (this will not get better by itself).
 */
export class Events {
  #controller = null;
  #snapshot;
  #state;

  constructor({ snapshot, state }) {
    this.#snapshot = snapshot;
    this.#state = state;
  }

  start() {
    if (this.#controller) return;
    this.#controller = new AbortController();
    this.#run(this.#controller.signal);
  }

  stop() {
    this.#controller?.abort();
    this.#controller = null;
  }

  async #run(signal) {
    let wait = FIRST_WAIT;
    while (!signal.aborted) {
      this.#state("connecting", null, 0);
      let failure;
      try {
        await this.#read(signal, () => {
          wait = FIRST_WAIT;
        });
        failure = new Failure("The server closed the connection.");
      } catch (error) {
        failure = error instanceof Failure ? error : new Failure("The connection to the server was lost.");
      }
      if (signal.aborted) return;
      if (failure.status >= 400 && failure.status < 500 && failure.status !== 429) {
        this.#controller = null;
        this.#state("refused", failure, 0);
        return;
      }
      const pause = Math.max(wait, failure.retryAfter ?? 0);
      this.#state("waiting", failure, pause);
      await paused(pause, signal);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }

  /** One connection. A server that says nothing for long, not even that it lives, is taken for gone. */
  async #read(signal, got) {
    const own = new AbortController();
    const abort = () => own.abort();
    signal.addEventListener("abort", abort);
    let patience = setTimeout(abort, PATIENCE_MILLISECONDS);
    try {
      const response = await ask("/v1/events", { signal: own.signal });
      for await (const { event, data } of readEvents(response.body)) {
        clearTimeout(patience);
        patience = setTimeout(abort, PATIENCE_MILLISECONDS);
        if (event !== "snapshot") continue;
        got();
        this.#state("live", null, 0);
        this.#snapshot(JSON.parse(data));
      }
    } finally {
      clearTimeout(patience);
      signal.removeEventListener("abort", abort);
    }
  }
}

function paused(seconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}
