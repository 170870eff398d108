// The key, the look, and the conversations as a whole.

import { announce } from "./lib/announce.js";
import { confirm, open } from "./lib/dialogs.js";
import { byId, setText } from "./lib/dom.js";
import { download } from "./lib/download.js";
import { isRemembered, key, setKey } from "./lib/key.js";
import { exported, imported } from "./chat/transfer.js";

const THEME = "millstream.theme";
const WHY = { invalid_api_key: "The server does not know this key.", expired_api_key: "This key has expired." };
const LARGEST_FILE = 200e6;

export class Settings {
  #store;
  #changed;
  #dialog = byId("settings");
  #keyChanged = false;
  #asking = null;

  /** `changed` is told when conversations came or went. */
  constructor(store, changed) {
    this.#store = store;
    this.#changed = changed;
    byId("settings-open").addEventListener("click", () => this.show());
    byId("key-form").addEventListener("submit", (event) => this.#saveKey(event));
    byId("key-forget").addEventListener("click", () => this.#forgetKey());
    byId("export-all").addEventListener("click", async () => {
      download("millstream-conversations.json", exported(await store.all()));
    });
    byId("import-file").addEventListener("change", (event) => this.#import(event.target));
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("delete-all").addEventListener("click", () => this.#deleteAll());
    for (const radio of document.querySelectorAll("input[name=theme]")) {
      radio.checked = radio.value === (document.documentElement.dataset.theme ?? "system");
      radio.addEventListener("change", () => setTheme(radio.value));
    }
    byId("history-note").hidden = store.lasts;
  }

  /** Opens the dialog. */
  show() {
    this.#keyChanged = false;
    byId("key").value = key();
    byId("key-remember").checked = isRemembered();
    byId("key-forget").hidden = !key();
    setText(byId("settings-status"), "");
    open(this.#dialog);
  }

  /** Asks for a key, as a failure tells that the server wants one, or another; whether the person gave another one.
   * Asked once at a time. */
  askForKey(failure) {
    this.#asking ??= new Promise((resolve) => {
      setText(byId("key-asked-why"), WHY[failure.code] ?? "The server asks for a key.");
      byId("key-asked").hidden = false;
      if (!this.#dialog.open) this.show();
      byId("key").focus();
      this.#dialog.addEventListener("close", () => {
        byId("key-asked").hidden = true;
        this.#asking = null;
        resolve(this.#keyChanged);
      }, { once: true });
    });
    return this.#asking;
  }

  #saveKey(event) {
    event.preventDefault();
    const text = byId("key").value.trim();
    // A header carries printable ASCII only.
    if (!/^[\x21-\x7e]*$/.test(text)) {
      setText(byId("settings-status"), "A key has letters, digits and punctuation only.");
      return;
    }
    setKey(text, byId("key-remember").checked);
    this.#keyChanged = true;
    this.#dialog.close();
    announce(text ? "Key saved." : "No key.");
    if (!this.#asking) this.#changed();
  }

  #forgetKey() {
    setKey("", false);
    byId("key").value = "";
    byId("key-forget").hidden = true;
    setText(byId("settings-status"), "The key is forgotten.");
  }

  async #import(input) {
    const [file] = input.files;
    input.value = "";
    if (!file) return;
    try {
      if (file.size > LARGEST_FILE) throw new Error("The file is larger than 200 MB.");
      const conversations = imported(await file.text());
      for (const conversation of conversations) await this.#store.put(conversation);
      setText(byId("settings-status"), `Imported: ${conversations.length}.`);
      this.#changed();
    } catch (error) {
      setText(byId("settings-status"), error.message);
    }
  }

  async #deleteAll() {
    if (!(await confirm("Delete all?", "All conversations will be gone from this browser.", "Delete all"))) return;
    await this.#store.clear();
    setText(byId("settings-status"), "All conversations are deleted.");
    location.hash = "#/";
    this.#changed();
  }
}

function setTheme(choice) {
  if (choice === "system") {
    localStorage.removeItem(THEME);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(THEME, choice);
    document.documentElement.dataset.theme = choice;
  }
}
