// The side bar: always there on a wide screen, a drawer on a narrow one.

import { byId } from "./lib/dom.js";

const NARROW = matchMedia("(max-width: 800px)");

export class Sidebar {
  #element = byId("sidebar");
  #openers = document.querySelectorAll("[data-opens-sidebar]");
  #opener = null;

  constructor() {
    for (const opener of this.#openers) opener.addEventListener("click", () => this.#open(opener));
    byId("sidebar-close").addEventListener("click", () => this.close());
    byId("sidebar-shade").addEventListener("click", () => this.close());
    this.#element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
    NARROW.addEventListener("change", () => this.#set(false));
    this.#set(false);
  }

  /** Marks the view that is shown. */
  mark(view) {
    for (const link of this.#element.querySelectorAll("[data-view]")) {
      if (link.dataset.view === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  close() {
    if (document.documentElement.dataset.sidebar !== "open") return;
    this.#set(false);
    this.#opener?.focus();
  }

  #open(opener) {
    this.#opener = opener;
    this.#set(true);
    byId("sidebar-close").focus();
  }

  #set(open) {
    document.documentElement.dataset.sidebar = open ? "open" : "closed";
    // What is under the drawer, and a drawer that is closed, cannot be reached by keys.
    byId("main").inert = open && NARROW.matches;
    this.#element.inert = !open && NARROW.matches;
    for (const opener of this.#openers) opener.setAttribute("aria-expanded", String(open));
  }
}
