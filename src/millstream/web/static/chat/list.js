// The conversations of this browser in the side bar.

import { ask, confirm } from "../lib/dialogs.js";
import { byId, h, iconButton } from "../lib/dom.js";
import { moment } from "../lib/format.js";

/** `act(what, entry, value)`: rename, delete or export an entry. */
export class ConversationList {
  #element = byId("conversations");
  #empty = byId("conversations-empty");
  #act;

  constructor(act) {
    this.#act = act;
  }

  /** Shows entries; the one with the id `current` is marked. */
  show(entries, current) {
    // A menu that is open, and the focus in it, outlive an answer that changes the order.
    const opened = this.#element.querySelector("details[open]")?.dataset.id;
    const focused = this.#element.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    this.#element.replaceChildren(...entries.map((entry) => this.#row(entry, entry.id === current, entry.id === opened)));
    this.#empty.hidden = entries.length > 0;
    if (focused) this.#element.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }

  #row(entry, isCurrent, isOpen) {
    const title = entry.title || "New conversation";
    const menu = h("details", { class: "menu", name: "conversation-menu", "data-id": entry.id, open: isOpen },
      h("summary", { "aria-label": `Actions for ${title}`, title: "Rename, export, delete", "data-focus": `m${entry.id}` },
        "⋯"),
      h("div", { class: "menu-body" },
        iconButton("edit", "Rename", () => this.#rename(entry, title, menu)),
        iconButton("export", "Export", () => this.#act("export", entry)),
        iconButton("trash", "Delete", () => this.#delete(entry, title))));
    return h("li", { class: isCurrent ? "current" : null },
      h("a", { href: `#/c/${entry.id}`, "aria-current": isCurrent ? "page" : null, "data-focus": `a${entry.id}` },
        h("span", { class: "title", dir: "auto" }, title),
        h("span", { class: "when" }, moment(entry.updated))),
      menu);
  }

  async #rename(entry, title, menu) {
    const text = await ask("Rename", "Title of the conversation", title);
    menu.open = false;
    if (text) this.#act("rename", entry, text);
  }

  async #delete(entry, title) {
    if (await confirm("Delete?", `“${title}” and all its messages will be gone from this browser.`, "Delete")) {
      this.#act("delete", entry);
    }
  }
}
