// One message on the page. Answers grow in place; `act` takes what the person wants done with a message.

import { copy } from "../lib/clipboard.js";
import { h, icon, iconButton, setText } from "../lib/dom.js";
import { integer, plural, rate, seconds } from "../lib/format.js";
import { Prose } from "../markdown/render.js";
import { CallList } from "./calls.js";

const ENDINGS = {
  length: "The answer reached its token limit.",
  content_filter: "The answer was ended by a filter.",
};

/** What the person wrote, which may be written anew. */
export class UserMessage {
  #text = h("div", { class: "said", dir: "auto" });
  #branches;
  #act;
  #message = null;

  constructor(act) {
    this.#act = act;
    this.#branches = new Branches(act);
    this.actions = h("div", { class: "actions" },
      copyButton(() => this.#message.content),
      iconButton("edit", "Edit and send again", () => this.#edit()),
      this.#branches.element);
    this.element = h("article", { class: "message user", "aria-label": "You" }, this.#text, this.actions);
  }

  update({ message, siblings, busy }) {
    this.#message = message;
    setText(this.#text, message.content);
    this.#branches.update(message, siblings, busy);
    this.actions.querySelector("[aria-label^=Edit]").disabled = busy;
  }

  #edit() {
    const field = h("textarea", { rows: "3", "aria-label": "Your message", dir: "auto" });
    field.value = this.#message.content;
    const close = () => {
      form.replaceWith(this.#text, this.actions);
      this.actions.querySelector("[aria-label^=Edit]").focus();
    };
    const form = h("form", {
      class: "edit",
      onsubmit: (event) => {
        event.preventDefault();
        if (field.value.trim()) this.#act("edit", this.#message, field.value);
      },
      onkeydown: (event) => {
        if (event.key === "Escape") close();
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
      },
    }, field, h("div", { class: "row" },
      h("button", { type: "submit", class: "primary" }, "Send"),
      h("button", { type: "button", onclick: close }, "Cancel")));
    this.#text.replaceWith(form);
    this.actions.remove();
    field.focus();
  }
}

/** What the model wrote. */
export class AssistantMessage {
  #thinking = new Prose("prose thought");
  #summary = h("span", {}, "Thinking");
  #details = h("details", { class: "thinking", hidden: true }, h("summary", {}, icon("right"), this.#summary));
  #prose = new Prose("prose words");
  #waiting = h("p", { class: "waiting", hidden: true }, "Waiting for the first token");
  #notes = h("div", { class: "notes" });
  #meta = h("p", { class: "meta" });
  #failure;
  #calls;
  #branches;
  #actions;
  #message = null;

  constructor(act) {
    this.#details.append(this.#thinking.element);
    // Hidden text costs nothing: the thinking is put into the page when it is opened.
    this.#details.addEventListener("toggle", () => this.#showThinking());
    this.#calls = new CallList((results) => act("results", this.#message, results));
    this.#branches = new Branches(act);
    this.#failure = new FailureNote(() => act("regenerate", this.#message));
    this.#actions = h("div", { class: "actions" },
      copyButton(() => this.#message.content),
      iconButton("again", "Answer again", () => act("regenerate", this.#message)),
      this.#branches.element);
    this.element = h("article", { class: "message assistant" },
      this.#details, this.#waiting, this.#prose.element, this.#calls.element, this.#notes, this.#failure.element,
      h("footer", {}, this.#actions, this.#meta));
  }

  update({ message, siblings, busy, openCalls, results }) {
    this.#message = message;
    const open = message.state === "open";
    this.element.setAttribute("aria-label", `Answer of ${message.model}`);
    this.element.setAttribute("aria-busy", String(open));
    this.element.dataset.state = message.state;
    this.#details.hidden = !message.reasoning;
    const thinks = open && !message.content && !message.calls.length;
    this.#details.classList.toggle("live", thinks);
    setText(this.#summary, thinks ? "Thinking…" : `Thought${thoughtTokens(message)}`);
    this.#showThinking();
    this.#waiting.hidden = !(thinks && !message.reasoning);
    this.#prose.element.hidden = !message.content;
    this.#prose.update(message.content);
    this.#calls.update(message.calls, busy ? [] : openCalls, results);
    const lines = notes(message);
    this.#notes.replaceChildren(...lines.map((line) => h("p", { class: "note" }, icon("warn"), h("span", {}, line))));
    this.#failure.update(message.failure, busy);
    setText(this.#meta, open ? "" : figures(message));
    this.#actions.hidden = open;
    this.#actions.querySelector("[aria-label='Answer again']").disabled = busy;
    this.#branches.update(message, siblings, busy);
  }

  #showThinking() {
    if (this.#details.open) this.#thinking.update(this.#message.reasoning);
  }
}

/** Steps between the messages in whose place one is. */
class Branches {
  #previous;
  #next;
  #label = h("span", {});
  #around = [];

  constructor(act) {
    this.#previous = iconButton("left", "Version before", () => act("choose", this.#around[0]));
    this.#next = iconButton("right", "Version after", () => act("choose", this.#around[1]));
    this.element = h("div", { class: "branches", hidden: true }, this.#previous, this.#label, this.#next);
  }

  update(message, siblings, busy) {
    const at = siblings.indexOf(message);
    this.#around = [siblings[at - 1], siblings[at + 1]];
    this.element.hidden = siblings.length < 2;
    this.#previous.disabled = busy || at === 0;
    this.#next.disabled = busy || at === siblings.length - 1;
    setText(this.#label, `${at + 1} / ${siblings.length}`);
  }
}

/** Why an answer failed, and the way to try again. */
class FailureNote {
  #title = h("strong");
  #text = h("span");
  #button;
  #timer = 0;

  constructor(retry) {
    this.#button = h("button", { type: "button", onclick: retry }, "Try again");
    this.element = h("div", { class: "failure", role: "alert", hidden: true },
      h("p", {}, icon("warn"), this.#title, " ", this.#text), this.#button);
  }

  update(failure, busy) {
    this.element.hidden = !failure;
    this.#button.disabled = busy;
    clearTimeout(this.#timer);
    if (!failure) return;
    setText(this.#title, `${failure.title}.`);
    setText(this.#text, failure.text);
    this.#count(failure);
  }

  #count(failure) {
    const left = Math.ceil(((failure.retryAt ?? 0) - Date.now()) / 1000);
    setText(this.#button, left > 0 ? `Try again (in ${seconds(left)})` : "Try again");
    if (left > 0) this.#timer = setTimeout(() => this.#count(failure), 1000);
  }
}

function copyButton(text) {
  const button = iconButton("copy", "Copy message", async () => {
    const done = await copy(text());
    button.dataset.done = String(done);
    button.setAttribute("aria-label", done ? "Copied" : "The browser does not allow copying");
    setTimeout(() => {
      delete button.dataset.done;
      button.setAttribute("aria-label", "Copy message");
    }, 2000);
  });
  return button;
}

function notes(message) {
  const found = [];
  if (message.state === "stopped") found.push("Stopped. What came until then is kept.");
  if (message.state === "done" && ENDINGS[message.finish]) found.push(ENDINGS[message.finish]);
  if (message.refusal) found.push("The server recognised this answer as a refusal.");
  if (message.warning) found.push(`Left out by the server: ${message.warning}`);
  return found;
}

function thoughtTokens(message) {
  const tokens = message.usage?.completion_tokens_details?.reasoning_tokens;
  return tokens ? ` (${plural(tokens, "token")})` : "";
}

/** "smollm2 · 142 tokens · 12.3 tokens/s · first after 0.4 s · prompt 37 (12 cached)" */
function figures({ model, usage, firstTokenSeconds, decodeSeconds }) {
  const parts = [model];
  if (usage) {
    const made = usage.completion_tokens;
    parts.push(plural(made, "token"));
    if (made > 1 && decodeSeconds > 0) parts.push(`${rate((made - 1) / decodeSeconds)} tokens/s`);
  }
  if (firstTokenSeconds !== null) parts.push(`first after ${seconds(firstTokenSeconds)}`);
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens;
    parts.push(`prompt ${integer(usage.prompt_tokens)}${cached ? ` (${integer(cached)} cached)` : ""}`);
  }
  return parts.join(" · ");
}
