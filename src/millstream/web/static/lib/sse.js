// Server-sent events from bytes that are cut anywhere (https://html.spec.whatwg.org/multipage/server-sent-events.html).
// EventSource itself cannot send a key or a body.

const LINE_END = /\r\n|\n|\r/g;

/** A parser that is fed text and gives the events that are complete. */
export class EventParser {
  #rest = "";
  #event = "";
  #data = [];

  /** @returns {{event: string, data: string}[]} */
  feed(text) {
    const events = [];
    // A carriage return at the end may be the first half of a line end.
    const whole = this.#rest + text;
    const held = whole.endsWith("\r") ? whole.length - 1 : whole.length;
    let from = 0;
    LINE_END.lastIndex = 0;
    for (let end = LINE_END.exec(whole); end && end.index < held; end = LINE_END.exec(whole)) {
      const event = this.#line(whole.slice(from, end.index));
      if (event) events.push(event);
      from = LINE_END.lastIndex;
    }
    this.#rest = whole.slice(from);
    return events;
  }

  #line(line) {
    if (line === "") {
      const event = this.#data.length ? { event: this.#event || "message", data: this.#data.join("\n") } : null;
      this.#event = "";
      this.#data = [];
      return event;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
    return null;
  }
}

/** The events of a response's body, until it ends. Leaving the loop cancels the response. */
export async function* readEvents(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parser = new EventParser();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      yield* parser.feed(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
