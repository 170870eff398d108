// The dashboard: live while it is shown and the tab is in front.

import { announce } from "../lib/announce.js";
import { words } from "../lib/api.js";
import { byId, setText } from "../lib/dom.js";
import { seconds } from "../lib/format.js";
import { Events } from "./events.js";
import { Tables } from "./tables.js";
import { Tiles } from "./tiles.js";

const STATES = { connecting: "connecting…", live: "live", waiting: "disconnected", refused: "refused" };

export class Dashboard {
  #askForKey;
  #events = new Events({
    snapshot: (value) => this.#snapshot(value),
    state: (name, failure, wait) => this.#state(name, failure, wait),
  });
  #tiles = new Tiles(byId("tiles"));
  #tables = new Tables(byId("tables"));
  #shown = false;
  #last = "";

  constructor(askForKey) {
    this.#askForKey = askForKey;
    byId("dashboard-retry").addEventListener("click", () => this.#restart());
    document.addEventListener("visibilitychange", () => {
      if (!this.#shown) return;
      if (document.hidden) this.#events.stop();
      else this.start();
    });
  }

  start() {
    this.#shown = true;
    this.#events.start();
  }

  stop() {
    this.#shown = false;
    this.#events.stop();
  }

  #restart() {
    this.#events.stop();
    this.#events.start();
  }

  #snapshot(now) {
    byId("dashboard-content").hidden = false;
    this.#tiles.update(now);
    this.#tables.update(now);
    setText(byId("server-status"), now.reason ? `${now.status}: ${now.reason}` : now.status);
    byId("server-status").dataset.state = now.status;
    setText(byId("server-facts"), `Millstream ${now.version} · up ${seconds(now.uptime_seconds)}`);
  }

  async #state(name, failure, wait) {
    const element = byId("connection");
    setText(element, STATES[name]);
    element.dataset.state = name;
    byId("dashboard-problem").hidden = !failure;
    if (failure) {
      const { title, text } = words(failure);
      setText(byId("dashboard-problem-title"), title);
      setText(byId("dashboard-problem-text"), name === "waiting" ? `${text} Trying again in ${seconds(wait)}.` : text);
      this.#tiles.gap();
    }
    if (name !== this.#last && name !== "connecting") announce(`Dashboard ${STATES[name]}.`);
    if (name !== "connecting") this.#last = name;
    if (failure?.status === 401 && (await this.#askForKey(failure)) && this.#shown) this.#restart();
  }
}
