// Requests, engines and models as tables; on a narrow screen each row is a card.

import { h, setText } from "../lib/dom.js";
import { bytes, integer, percent, plural, rate, seconds } from "../lib/format.js";
import { reason } from "./tiles.js";

/** How far a prompt is that is being read. */
function read(row) {
  const under = row.state === "prefill" && row.prompt_done > 0 && row.prompt_done < row.prompt_tokens;
  return under ? `${percent(row.prompt_done / row.prompt_tokens)} read` : null;
}

const STATES = {
  loaded: "loaded", loading: "loading", failed: "failed", on_disk: "on disk", pulling: "pulling", available: "available",
};

/** Columns: heading, what a cell shows (text or a node), and whether it is a number. */
const REQUESTS = [
  ["Request", (row) => h("code", {}, row.id)],
  ["Key", (row) => row.key || "–"],
  ["Surface", (row) => row.surface],
  ["Model", (row) => row.model],
  ["State", (row) => state(row.state, row.wait_reason ? reason(row.wait_reason) : read(row))],
  ["Prompt", (row) => integer(row.prompt_tokens), true],
  ["Tokens", (row) => integer(row.completion_tokens), true],
  ["Tokens/s", (row) => rate(row.tokens_per_second), true],
  ["Age", (row, now) => seconds(Math.max(0, now.time - row.began)), true],
];

const ENGINES = [
  ["Model", (row) => row.model],
  ["Status", (row) => state(row.status, row.reason)],
  ["Running", (row) => integer(row.running), true],
  ["Waiting", (row) => integer(row.waiting), true],
  ["KV cache", (row) => percent(row.kv_blocks_total ? row.kv_blocks_used / row.kv_blocks_total : null), true],
  ["Kernels", (row) => (row.isa ? `${row.isa}, ${plural(row.threads, "thread")}` : "–")],
  ["Memory", (row) => (row.resident_bytes ? bytes(row.resident_bytes) : "–"), true],
  ["Preempted", (row) => integer(row.preemptions), true],
  ["Restarts", (row) => integer(row.restarts), true],
];

const MODELS = [
  ["Model", (row) => (row.default ? `${row.name} (default)` : row.name)],
  ["State", (row) => state(STATES[row.state] ?? row.state, progress(row) ?? row.error)],
  ["Size", (row) => (row.file_bytes || row.fetch_bytes ? bytes(row.file_bytes || row.fetch_bytes) : "–"), true],
  ["Context", (row) => (row.context_length ? integer(row.context_length) : "–"), true],
  ["Open requests", (row) => integer(row.open_requests), true],
  ["License", (row) => row.license || "–"],
];

const KEYS = [
  ["Key", (row) => row.name],
  ["Open", (row) => integer(row.open_requests), true],
  ["Requests", (row) => integer(row.requests), true],
  ["Refused", (row) => integer(row.refused), true],
  ["Prompt tokens", (row) => integer(row.prompt_tokens), true],
  ["Tokens", (row) => integer(row.completion_tokens), true],
];

/** The tables of the dashboard, by the member of a snapshot that they show. */
export class Tables {
  #tables;

  constructor(parent) {
    this.#tables = [
      new Table("requests", "Open requests", "Nothing is being answered.", REQUESTS),
      new Table("engines", "Engines", "There is no engine.", ENGINES),
      new Table("models", "Models", "No model is known.", MODELS),
      new Table("keys", "Keys", null, KEYS),
    ];
    parent.replaceChildren(...this.#tables.map((table) => table.element));
  }

  update(snapshot) {
    for (const table of this.#tables) table.update(snapshot);
  }
}

class Table {
  #member;
  #columns;
  #body = h("tbody", { role: "rowgroup" });
  #empty;
  #scrolls;
  #count = h("span", { class: "count" });

  /** `empty` is said where there are no rows; null hides the table then. */
  constructor(member, title, empty, columns) {
    this.#member = member;
    this.#columns = columns;
    this.#empty = empty === null ? null : h("p", { class: "empty" }, empty);
    // The roles are said since browsers forget them where a table is laid out as cards.
    const head = columns.map(([name, , number]) => (
      h("th", { scope: "col", role: "columnheader", class: number ? "number" : null }, name)
    ));
    this.#scrolls = h("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": title },
      h("table", { class: "cards", role: "table" },
        h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)), this.#body));
    this.element = h("section", { class: "panel", "aria-label": title },
      h("h2", {}, title, " ", this.#count), this.#scrolls, this.#empty);
  }

  update(snapshot) {
    const rows = snapshot[this.#member] ?? [];
    this.element.hidden = rows.length === 0 && this.#empty === null;
    this.#scrolls.hidden = rows.length === 0;
    if (this.#empty) this.#empty.hidden = rows.length > 0;
    setText(this.#count, rows.length ? String(rows.length) : "");
    this.#body.replaceChildren(...rows.map((row) => this.#row(row, snapshot)));
  }

  #row(row, snapshot) {
    return h("tr", { role: "row" }, this.#columns.map(([name, cell, number]) => (
      h("td", { role: "cell", "data-label": name, class: number ? "number" : null }, cell(row, snapshot))
    )));
  }
}

function state(name, why) {
  return h("span", {}, h("span", { class: "state", "data-state": name }, name), why ? h("small", {}, ` ${why}`) : null);
}

function progress(model) {
  if (model.state !== "pulling" || !model.fetch_bytes) return null;
  return `${percent(model.fetched_bytes / model.fetch_bytes)} of ${bytes(model.fetch_bytes)} to fetch`;
}
