// The numbers at the top: what each tile says of a snapshot.

import { h, setText } from "../lib/dom.js";
import { integer, percent, plural, rate, seconds } from "../lib/format.js";
import { Sparkline } from "./sparkline.js";

const REASONS = {
  step_budget: "the step's tokens went to others", max_sequences: "every place in the batch is taken",
  kv_cache: "not enough free KV cache", shared_prefix: "another one computes its prefix",
  paused_reader: "its client has stopped reading", suspected: "on trial after a crash", held: "paused by the operator",
};

/** A waiting reason in words; one that this page does not know is shown as it is. */
export function reason(name) {
  return REASONS[name] ?? String(name).replaceAll("_", " ");
}

/** Name, unit, the value that is drawn, how it is written, and the lines below it. */
const TILES = [
  { name: "Generated", unit: "tokens/s", value: (now) => now.decode_tokens_per_second, write: rate,
    lines: (now) => [`prompts ${rate(now.prompt_tokens_per_second)} tokens/s`] },
  { name: "Running", unit: "", value: (now) => sum(now, "running"), write: integer,
    lines: (now) => [waiting(now), ...waits(now)] },
  { name: "KV cache", unit: "", value: kvShare, write: percent,
    lines: (now) => [`${integer(sum(now, "kv_blocks_used"))} of ${integer(sum(now, "kv_blocks_total"))} blocks`,
      `prefix cache hits ${percent(prefixHits(now))}`] },
  { name: "First token", unit: "median", value: (now) => now.first_token?.p50 ?? null, write: seconds,
    lines: (now) => quantiles(now.first_token) },
  { name: "Between tokens", unit: "median", value: (now) => now.inter_token?.p50 ?? null, write: seconds,
    lines: (now) => quantiles(now.inter_token) },
];

export class Tiles {
  #tiles = TILES.map((plan) => new Tile(plan));

  constructor(parent) {
    parent.replaceChildren(...this.#tiles.map((tile) => tile.element));
  }

  update(snapshot) {
    for (const tile of this.#tiles) tile.update(snapshot);
  }

  /** Nothing is known of this time. */
  gap() {
    for (const tile of this.#tiles) tile.gap();
  }
}

class Tile {
  #plan;
  #number = h("span", { class: "number" }, "–");
  #lines = h("div", { class: "lines" });
  #spark;

  constructor(plan) {
    this.#plan = plan;
    this.#spark = new Sparkline(plan.name, plan.write);
    this.element = h("section", { class: "tile", "aria-label": plan.name },
      h("header", {}, h("h2", {}, plan.name), this.#spark.most),
      h("p", { class: "value" }, this.#number, plan.unit ? h("span", { class: "unit" }, ` ${plan.unit}`) : null),
      this.#spark.element, this.#lines);
  }

  update(snapshot) {
    const value = this.#plan.value(snapshot) ?? null;
    setText(this.#number, value === null ? "–" : this.#plan.write(value));
    const lines = this.#plan.lines(snapshot);
    if (this.#lines.textContent !== lines.join("")) this.#lines.replaceChildren(...lines.map((line) => h("p", {}, line)));
    this.#spark.push(value);
  }

  gap() {
    this.#spark.push(null);
  }
}

function sum(snapshot, member) {
  return (snapshot.engines ?? []).reduce((total, engine) => total + (engine[member] ?? 0), 0);
}

function kvShare(snapshot) {
  const total = sum(snapshot, "kv_blocks_total");
  return total ? sum(snapshot, "kv_blocks_used") / total : null;
}

function prefixHits(snapshot) {
  const known = (snapshot.engines ?? []).map((engine) => engine.prefix_hit_ratio ?? null).filter((hit) => hit !== null);
  return known.length ? known.reduce((total, hit) => total + hit, 0) / known.length : null;
}

function waiting(snapshot) {
  return `${integer(sum(snapshot, "waiting"))} waiting`;
}

function waits(snapshot) {
  const counts = new Map();
  for (const engine of snapshot.engines ?? []) {
    for (const [name, count] of Object.entries(engine.waits ?? {})) counts.set(name, (counts.get(name) ?? 0) + count);
  }
  return [...counts].filter(([, count]) => count).map(([name, count]) => `${plural(count, "sequence")}: ${reason(name)}`);
}

function quantiles(percentiles) {
  return [`p95 ${seconds(percentiles?.p95)}`, `p99 ${seconds(percentiles?.p99)}`];
}
