// A line of the last values.

import { setText, svg, h } from "../lib/dom.js";

const SAMPLES = 120;
const WIDTH = 240;
const HEIGHT = 48;

/** A sparkline; `describe(value)` says a value in words. */
export class Sparkline {
  #values = [];
  #describe;
  #title = svg("title");
  #line = svg("path", { class: "line" });
  #area = svg("path", { class: "area" });
  /** The largest value, for beside the name. */
  most = h("span", { class: "most", "aria-hidden": "true" });

  constructor(name, describe) {
    this.name = name;
    this.#describe = describe;
    this.element = h("div", { class: "spark" },
      svg("svg", { role: "img", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" },
        this.#title, this.#area, this.#line));
  }

  /** Appends a value; null is a gap. */
  push(value) {
    this.#values.push(value);
    if (this.#values.length > SAMPLES) this.#values.shift();
    const known = this.#values.filter((each) => each !== null);
    if (!known.length) return;
    const top = Math.max(...known);
    const { line, area } = paths(this.#values, top);
    this.#line.setAttribute("d", line);
    this.#area.setAttribute("d", area);
    setText(this.most, `max ${this.#describe(top)}`);
    setText(this.#title, `${this.name}: now ${this.#describe(known.at(-1))}, at least ${
      this.#describe(Math.min(...known))}, at most ${this.#describe(top)}`);
  }
}

/** The line, and the area below it, with the newest value at the right edge; gaps interrupt both. */
export function paths(values, top) {
  const step = WIDTH / (SAMPLES - 1);
  const left = WIDTH - (values.length - 1) * step;
  const runs = [[]];
  values.forEach((value, at) => {
    if (value === null) runs.push([]);
    else runs.at(-1).push([left + at * step, HEIGHT - 2 - (top ? value / top : 0) * HEIGHT * 0.85]);
  });
  const drawn = runs.filter((run) => run.length);
  const point = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const line = drawn.map((run) => `M${run.map(point).join("L")}`).join("");
  const area = drawn
    .map((run) => `M${run[0][0].toFixed(1)} ${HEIGHT}L${run.map(point).join("L")}L${run.at(-1)[0].toFixed(1)} ${HEIGHT}Z`)
    .join("");
  return { line, area };
}
