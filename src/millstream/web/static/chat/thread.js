// The messages of a conversation as a column that stays at its end while the person is there.

import { byId } from "../lib/dom.js";
import { openCalls, path, siblings } from "./tree.js";
import { AssistantMessage, UserMessage } from "./message.js";

const NEAR = 80;

/** `act(what, message, value)`: what the person wants done. */
export class Thread {
  #element = byId("thread");
  #scroller = byId("scroller");
  #jump = byId("jump");
  #welcome = byId("welcome");
  #views = new Map();
  #act;
  #follows = true;
  #frame = 0;

  constructor(act) {
    this.#act = act;
    this.#scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#jump.addEventListener("click", () => this.toEnd());
  }

  /** Shows a conversation anew: other messages than before. */
  show(conversation, busy) {
    const shown = path(conversation);
    const results = new Map(shown.filter(({ role }) => role === "tool").map(({ callId, content }) => [callId, content]));
    const asking = openCalls(conversation);
    const views = new Map();
    for (const message of shown) {
      if (message.role === "tool") continue; // shown at its call
      const view = this.#views.get(message.id) ?? this.#view(message);
      view.update({ message, siblings: siblings(conversation, message), busy, openCalls: asking, results });
      views.set(message.id, view);
    }
    this.#views = views;
    const elements = [...views.values()].map((view) => view.element);
    const same = elements.length === this.#element.children.length
      && elements.every((element, at) => this.#element.children[at] === element);
    if (!same) this.#element.replaceChildren(...elements);
    this.#welcome.hidden = elements.length > 0;
    this.#follow();
  }

  /** Shows what came of an answer; as often as the screen changes, however often it is called. */
  grow(message) {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#views.get(message.id)?.update({
        message, siblings: [message], busy: true, openCalls: [], results: new Map(),
      });
      this.#follow();
    });
  }

  /** Goes to the last message, and stays there. */
  toEnd() {
    this.#follows = true;
    this.#follow();
  }

  #view(message) {
    return message.role === "user" ? new UserMessage(this.#act) : new AssistantMessage(this.#act);
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    this.#follows = scrollHeight - scrollTop - clientHeight < NEAR;
    this.#jump.hidden = this.#follows;
  }

  #follow() {
    if (this.#follows) this.#scroller.scrollTop = this.#scroller.scrollHeight;
    else this.#jump.hidden = false;
  }
}
