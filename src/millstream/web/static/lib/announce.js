// What a screen reader says of things that change: one polite region, filled seldom.

import { byId } from "./dom.js";

const PAUSE = 3000;

/** Says a short text. */
export function announce(text) {
  const region = byId("announcer");
  region.textContent = "";
  // The same text twice in a row is no change unless the region was empty between.
  requestAnimationFrame(() => {
    region.textContent = text;
  });
}

/** Says a text that grows, sentence by sentence, at most every three seconds. */
export class StreamAnnouncer {
  #said = 0;
  #last = 0;

  /** The text so far. */
  update(text) {
    if (Date.now() - this.#last < PAUSE) return;
    const end = sentenceEnd(text, this.#said);
    if (end > this.#said) this.#say(text, end);
  }

  /** The text is complete. */
  finish(text, closing) {
    announce(`${text.slice(this.#said)} ${closing}`.trim());
    this.#said = text.length;
  }

  #say(text, end) {
    announce(text.slice(this.#said, end));
    this.#said = end;
    this.#last = Date.now();
  }
}

/** Behind the last sentence or line that is complete. */
function sentenceEnd(text, from) {
  for (let at = text.length - 1; at > from; at -= 1) {
    if (text[at] === "\n" || (/\s/.test(text[at]) && /[.!?:;。！？]/.test(text[at - 1]))) return at + 1;
  }
  return from;
}
