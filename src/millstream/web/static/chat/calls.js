// A tool call of an answer: what is called with what, and the result, which the person gives.

import { h, icon, setText } from "../lib/dom.js";

/** The calls of one answer as elements that grow with it. */
export class CallList {
  #cards = [];
  #submit;
  #give;

  /** `give` takes the results, by the ids of their calls. */
  constructor(give) {
    this.#give = give;
    this.#submit = h("button", { type: "submit", class: "primary", hidden: true }, "Send results");
    this.element = h("form", { class: "calls", hidden: true, onsubmit: (event) => this.#send(event) }, this.#submit);
  }

  /** Shows calls; those of `open` ask for a result, `results` are there. */
  update(calls, open, results) {
    this.element.hidden = calls.length === 0;
    calls.forEach((call, index) => {
      if (!this.#cards[index]) {
        this.#cards[index] = new CallCard();
        this.#submit.before(this.#cards[index].element);
      }
      this.#cards[index].update(call, open.includes(call), results.get(call.id));
    });
    this.#submit.hidden = open.length === 0;
    setText(this.#submit, open.length > 1 ? "Send results" : "Send result");
  }

  #send(event) {
    event.preventDefault();
    const asking = this.#cards.filter((card) => card.asks);
    if (asking.length) this.#give(asking.map((card) => ({ callId: card.id, content: card.value })));
  }
}

class CallCard {
  id = "";
  #name = h("code", { class: "call-name" });
  #arguments = h("pre", { class: "call-arguments", tabindex: "0", "aria-label": "Arguments" });
  #field = h("textarea", { rows: "2", spellcheck: "false", placeholder: "What the tool answers" });
  #asked = h("label", { class: "call-result", hidden: true }, h("span", {}, "Result"), this.#field);
  #given = h("pre", { class: "call-given", tabindex: "0", "aria-label": "Result" });
  #result = h("div", { class: "call-result", hidden: true }, h("span", {}, "Result"), this.#given);

  constructor() {
    this.element = h("section", { class: "call" },
      h("header", {}, icon("tool"), h("span", {}, "Calls "), this.#name),
      this.#arguments, this.#asked, this.#result);
  }

  get asks() {
    return !this.#asked.hidden;
  }

  get value() {
    return this.#field.value;
  }

  update(call, asks, result) {
    this.id = call.id;
    setText(this.#name, call.name);
    setText(this.#arguments, pretty(call.arguments));
    this.element.setAttribute("aria-label", `Tool call: ${call.name}`);
    this.#asked.hidden = !asks;
    this.#result.hidden = result === undefined;
    setText(this.#given, result ?? "");
  }
}

/** JSON with its members on lines of their own; as it is while it is not complete. */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
