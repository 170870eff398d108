// The field in which the person writes, and the button that sends or stops.

import { byId, setText } from "../lib/dom.js";

/** `send(text)` and `stop()` are what the person wants. */
export class Composer {
  #form = byId("composer");
  #field = byId("prompt");
  #button = byId("send");
  #hint = byId("composer-hint");
  #busy = false;
  #blocked = false;
  #send;
  #stop;

  constructor({ send, stop }) {
    this.#send = send;
    this.#stop = stop;
    this.#form.addEventListener("submit", (event) => this.#submit(event));
    this.#field.addEventListener("input", () => this.#grow());
    this.#field.addEventListener("keydown", (event) => this.#key(event));
    this.#show();
  }

  /** `busy`: an answer is being written. `hint`: why nothing can be sent now; null if it can. */
  update({ busy, hint }) {
    this.#busy = busy;
    this.#blocked = hint !== null;
    setText(this.#hint, hint ?? "");
    this.#show();
  }

  focus() {
    this.#field.focus();
  }

  /** Puts a text there that was not sent. */
  restore(text) {
    if (!this.#field.value) this.#field.value = text;
    this.#grow();
  }

  #submit(event) {
    event.preventDefault();
    if (this.#busy) {
      this.#stop();
      return;
    }
    const text = this.#field.value;
    if (!text.trim() || this.#blocked) return;
    this.#field.value = "";
    this.#grow();
    this.#send(text);
  }

  #key(event) {
    if (event.key === "Escape" && this.#busy) this.#stop();
    // Enter that ends the choice of a character belongs to the input method; on a touch screen Enter is a new line.
    const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches;
    if (!sends) return;
    event.preventDefault();
    if (!this.#busy) this.#form.requestSubmit();
  }

  #grow() {
    // Up to the height that the style sheet allows.
    this.#field.style.height = "auto";
    this.#field.style.height = `${this.#field.scrollHeight}px`;
    this.#show();
  }

  #show() {
    const label = this.#busy ? "Stop" : "Send";
    this.#button.setAttribute("aria-label", label);
    this.#button.title = this.#busy ? "Stop (Escape)" : "Send (Enter)";
    this.#button.dataset.busy = String(this.#busy);
    this.#button.disabled = !this.#busy && (this.#blocked || !this.#field.value.trim());
  }
}
