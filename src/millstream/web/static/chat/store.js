// The conversations in this browser: IndexedDB, as a long one is larger than localStorage holds. Where a browser gives
// no database (some private windows) they live as long as the page.

const NAME = "millstream";
const TABLE = "conversations";

/** Opens the store. `changed` is called when another tab changed something, with the id of what it changed. */
export async function openStore(changed) {
  const database = await opened();
  const channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(NAME) : null;
  if (channel) channel.onmessage = (event) => changed(event.data);
  return new Store(database, (id) => channel?.postMessage(id));
}

class Store {
  #database;
  #tell;
  #memory = new Map();

  constructor(database, tell) {
    this.#database = database;
    this.#tell = tell;
  }

  /** Whether what is kept outlives the page. */
  get lasts() {
    return this.#database !== null;
  }

  /** All conversations without their messages, the last one changed first. */
  async list() {
    const all = this.#database ? await this.#run("readonly", (table) => table.getAll()) : [...this.#memory.values()];
    return all.map(({ id, title, updated }) => ({ id, title, updated })).sort((one, other) => other.updated - one.updated);
  }

  /** A conversation, or null. */
  async get(id) {
    const found = this.#database ? await this.#run("readonly", (table) => table.get(id)) : this.#memory.get(id);
    return found ? structuredClone(found) : null;
  }

  /** All of them, whole. */
  all() {
    return this.#database ? this.#run("readonly", (table) => table.getAll()) : [...this.#memory.values()];
  }

  /** Keeps a conversation as it is now. */
  async put(conversation) {
    const kept = structuredClone(conversation);
    if (this.#database) await this.#run("readwrite", (table) => table.put(kept));
    else this.#memory.set(kept.id, kept);
    this.#tell(kept.id);
  }

  /** Forgets one. */
  async delete(id) {
    if (this.#database) await this.#run("readwrite", (table) => table.delete(id));
    this.#memory.delete(id);
    this.#tell(id);
  }

  /** Forgets all. */
  async clear() {
    if (this.#database) await this.#run("readwrite", (table) => table.clear());
    this.#memory.clear();
    this.#tell(null);
  }

  #run(mode, action) {
    return new Promise((resolve, reject) => {
      const transaction = this.#database.transaction(TABLE, mode);
      const request = action(transaction.objectStore(TABLE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => reject(transaction.error);
    });
  }
}

function opened() {
  return new Promise((resolve) => {
    let request;
    try {
      request = indexedDB.open(NAME, 1);
    } catch {
      resolve(null);
      return;
    }
    request.onupgradeneeded = () => request.result.createObjectStore(TABLE, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => resolve(null);
    request.onblocked = () => resolve(null);
  });
}
