// The chat: one conversation is shown, and what the person does is done to it.

import { StreamAnnouncer, announce } from "../lib/announce.js";
import { words } from "../lib/api.js";
import { byId, setText } from "../lib/dom.js";
import { download, fileName } from "../lib/download.js";
import { Composer } from "./composer.js";
import { openAnswer } from "./completion.js";
import { ConversationList } from "./list.js";
import { ModelPicker } from "./models.js";
import { ParameterForm, countOf, fieldsOf } from "./parameters.js";
import { requestBody } from "./request.js";
import { Runs } from "./runs.js";
import { Thread } from "./thread.js";
import { exported } from "./transfer.js";
import { add, choose, isEmpty, newConversation, openCalls, path, remove } from "./tree.js";

const PARAMETERS = "millstream.parameters";
const ENDINGS = { done: "Answer complete.", stopped: "Stopped.", failed: "" };

export class ChatView {
  #store;
  #runs;
  #askForKey;
  #conversation;
  #models = new ModelPicker((name) => this.#setModel(name));
  #thread = new Thread((what, message, value) => this.#act(what, message, value));
  #composer = new Composer({ send: (text) => this.#send(text), stop: () => this.#runs.stop(this.#conversation.id) });
  #list = new ConversationList((what, entry, value) => this.#actOnEntry(what, entry, value));
  #form = new ParameterForm((parameters) => this.#setParameters(parameters));

  /** `askForKey(failure)` asks the person for a key and tells whether there is another one now. */
  constructor(store, askForKey) {
    this.#store = store;
    this.#runs = new Runs(store);
    this.#askForKey = askForKey;
    this.#conversation = newConversation(null, lastParameters());
    byId("parameters-open").addEventListener("click", () => this.#form.show(this.#conversation.parameters));
    addEventListener("online", () => this.refreshModels());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && !this.#models.known) this.refreshModels();
    });
  }

  /** Shows a conversation by its id, or a new one; whether there is such a conversation. */
  async open(id) {
    const found = id === null ? null : this.#runs.conversation(id) ?? settled(await this.#store.get(id));
    this.#conversation = found ?? newConversation(this.#models.current, lastParameters());
    this.#models.choose(this.#conversation.model);
    this.#show();
    this.#thread.toEnd();
    await this.refreshList();
    return id === null || found !== null;
  }

  /** Puts the focus where the person writes. */
  focus() {
    this.#composer.focus();
  }

  /** Another tab changed a conversation (null: all of them). */
  async changedElsewhere(id) {
    const own = this.#conversation.id;
    if ((id === null || id === own) && !this.#runs.conversation(own)) {
      const found = await this.#store.get(own);
      if (found) this.#conversation = found;
      this.#show();
    }
    await this.refreshList();
  }

  /** Asks for the models; a failure is told above the composer. */
  async refreshModels() {
    try {
      await this.#models.refresh();
      this.#problem(null);
    } catch (failure) {
      this.#problem(failure);
      if (failure.status === 401 && (await this.#askForKey(failure))) await this.refreshModels();
    }
  }

  async refreshList() {
    this.#list.show(await this.#store.list(), this.#conversation.id);
  }

  async #send(text) {
    const conversation = this.#conversation;
    add(conversation, conversation.leaf, { role: "user", content: text });
    history.replaceState(null, "", `#/c/${conversation.id}`);
    await this.#answer(conversation, conversation.leaf);
  }

  async #act(what, message, value) {
    const conversation = this.#conversation;
    if (this.#runs.conversation(conversation.id)) return;
    switch (what) {
      case "edit":
        add(conversation, message.parent, { role: "user", content: value });
        await this.#answer(conversation, conversation.leaf);
        break;
      case "regenerate":
        await this.#regenerate(conversation, message);
        break;
      case "results":
        for (const result of value) add(conversation, conversation.leaf, { role: "tool", ...result });
        await this.#answer(conversation, conversation.leaf);
        break;
      case "choose":
        choose(conversation, message.id);
        this.#show();
        await this.#store.put(conversation);
        break;
    }
  }

  async #regenerate(conversation, message) {
    const followed = Object.values(conversation.messages).some(({ parent }) => parent === message.id);
    if (message.state === "failed" && isEmpty(message) && !followed) remove(conversation, message);
    await this.#answer(conversation, message.parent);
  }

  /** Asks for the answer to what is shown up to a message, and shows it while it comes. */
  async #answer(conversation, parent) {
    if (!this.#models.known) await this.refreshModels();
    const model = this.#models.current ?? conversation.model ?? "";
    conversation.model = model;
    const body = requestBody(conversation, parent, model);
    const message = add(conversation, parent, openAnswer(model));
    const announcer = new StreamAnnouncer();
    const running = this.#runs.run(conversation, message, body, () => {
      if (this.#conversation !== conversation) return;
      this.#thread.grow(message);
      announcer.update(message.content);
    });
    this.#show();
    this.#thread.toEnd();
    this.#composer.focus();
    await this.#keep(conversation);
    const failure = await running;
    await this.#keep(conversation);
    if (this.#conversation === conversation) {
      this.#show();
      announcer.finish(message.content, ENDINGS[message.state]);
    }
    if (failure?.code === "model_not_found") await this.refreshModels();
    if (failure?.status === 401 && (await this.#askForKey(failure))) {
      await this.refreshModels();
      await this.#regenerate(conversation, message);
    }
  }

  async #keep(conversation) {
    try {
      await this.#store.put(conversation);
    } catch (error) {
      this.#problem(new Error(`The conversation could not be kept in this browser: ${error.message}`));
    }
    await this.refreshList();
  }

  async #actOnEntry(what, entry, value) {
    const own = entry.id === this.#conversation.id;
    const conversation = own ? this.#conversation : this.#runs.conversation(entry.id) ?? await this.#store.get(entry.id);
    if (what === "export" && conversation) {
      download(`${fileName(conversation.title)}.json`, exported([conversation]));
    } else if (what === "rename" && conversation) {
      conversation.title = value;
      await this.#keep(conversation);
      this.#show();
    } else if (what === "delete") {
      this.#runs.stop(entry.id);
      await this.#store.delete(entry.id);
      announce("Deleted.");
      if (own) location.hash = "#/";
      await this.refreshList();
    }
  }

  #setModel(name) {
    this.#conversation.model = name;
  }

  async #setParameters(parameters) {
    this.#conversation.parameters = parameters;
    localStorage.setItem(PARAMETERS, JSON.stringify(parameters));
    this.#show();
    if (path(this.#conversation).length) await this.#store.put(this.#conversation);
  }

  #show() {
    const conversation = this.#conversation;
    const busy = this.#runs.conversation(conversation.id) !== null;
    this.#thread.show(conversation, busy);
    const asks = !busy && openCalls(conversation).length > 0;
    this.#composer.update({ busy, hint: asks ? "The model waits for the result of its call: give it above." : null });
    setText(byId("chat-title"), conversation.title || "New conversation");
    const count = countOf(conversation.parameters);
    setText(byId("parameters-count"), count ? String(count) : "");
    byId("parameters-open").setAttribute("aria-label", count ? `Parameters, ${count} set` : "Parameters");
  }

  #problem(failure) {
    const { title, text } = failure ? words(failure) : { title: "", text: "" };
    byId("problem").hidden = !failure;
    setText(byId("problem-text"), failure ? `${title}. ${text}` : "");
  }
}

/** A conversation as it is read: nobody writes its answers any more. */
function settled(conversation) {
  for (const message of Object.values(conversation?.messages ?? {})) {
    if (message.state === "open") message.state = "stopped";
  }
  return conversation;
}

function lastParameters() {
  try {
    return fieldsOf(JSON.parse(localStorage.getItem(PARAMETERS) ?? "{}"));
  } catch {
    return {};
  }
}
