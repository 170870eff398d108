// The models that are served, and the one that is chosen.

import { models } from "../lib/api.js";
import { byId, h } from "../lib/dom.js";
import { integer } from "../lib/format.js";

const NAME = "millstream.model";

export class ModelPicker {
  #select = byId("model");
  #served = [];
  #wanted = localStorage.getItem(NAME);

  /** `chosen(name)` is told what the person chooses. */
  constructor(chosen) {
    this.#select.addEventListener("change", () => {
      this.#wanted = this.#select.value;
      localStorage.setItem(NAME, this.#wanted);
      chosen(this.#wanted);
    });
  }

  /** The model that answers next; null while none is known. */
  get current() {
    return this.#select.value || null;
  }

  /** Whether the server has told its models. */
  get known() {
    return this.#served.length > 0;
  }

  /** Asks the server anew. Raises Failure. */
  async refresh() {
    this.#served = await models();
    this.#show();
  }

  /** Chooses a model, if it is served. */
  choose(name) {
    if (name) this.#wanted = name;
    this.#show();
  }

  #show() {
    const options = this.#served.map(({ id, contextLength }) => h("option", {
      value: id, title: contextLength ? `${integer(contextLength)} tokens of context` : null,
    }, id));
    this.#select.replaceChildren(...(options.length ? options : [h("option", { value: "" }, "No model yet")]));
    if (this.#served.some(({ id }) => id === this.#wanted)) this.#select.value = this.#wanted;
    this.#select.disabled = options.length === 0;
  }
}
