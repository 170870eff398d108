// Blocks as elements. While a text grows only the blocks that changed are made anew, so that a selection stays.

import { copy } from "../lib/clipboard.js";
import { h, iconButton } from "../lib/dom.js";
import { parseBlocks } from "./blocks.js";
import { parseInline } from "./inline.js";

/** An element that shows a text as Markdown. */
export class Prose {
  #text = null;
  #sources = [];

  constructor(className = "prose") {
    this.element = h("div", { class: className, dir: "auto" });
  }

  /** Shows the text, which may be the beginning of a longer one. */
  update(text) {
    if (text === this.#text) return;
    this.#text = text;
    const blocks = parseBlocks(text);
    let same = 0;
    while (same < blocks.length && blocks[same].source === this.#sources[same]) same += 1;
    while (this.element.childNodes.length > same) this.element.lastChild.remove();
    this.element.append(...blocks.slice(same).map(blockElement));
    this.#sources = blocks.map((block) => block.source);
  }
}

function blockElement(block) {
  switch (block.kind) {
    case "heading":
      // The page has the first levels itself.
      return h(`h${Math.min(block.level + 2, 6)}`, {}, spans(block.text));
    case "code":
      return codeElement(block);
    case "rule":
      return h("hr");
    case "quote":
      return h("blockquote", {}, block.blocks.map(blockElement));
    case "list":
      return listElement(block);
    case "table":
      return tableElement(block);
    default:
      return h("p", {}, spans(block.text));
  }
}

function codeElement({ language, text }) {
  const button = iconButton("copy", "Copy code", async () => {
    const done = await copy(text);
    button.dataset.done = String(done);
    button.setAttribute("aria-label", done ? "Copied" : "The browser does not allow copying");
    setTimeout(() => {
      delete button.dataset.done;
      button.setAttribute("aria-label", "Copy code");
    }, 2000);
  });
  return h("figure", { class: "code" },
    h("figcaption", {}, h("span", {}, language || "text"), button),
    // A region that scrolls sideways has to be reachable by keys.
    h("pre", { tabindex: "0", dir: "ltr" }, h("code", {}, text)));
}

function listElement({ start, items, loose }) {
  const elements = items.map((blocks) => h("li", {}, blocks.map((block) => (
    block.kind === "paragraph" && !loose ? h("span", {}, spans(block.text)) : blockElement(block)
  ))));
  return start === null ? h("ul", {}, elements) : h("ol", { start: start === 1 ? null : String(start) }, elements);
}

function tableElement({ aligns, head, rows }) {
  const row = (tag, texts) => h("tr", {}, texts.map((text, column) => (
    h(tag, { class: `align-${aligns[column]}`, scope: tag === "th" ? "col" : null }, spans(text))
  )));
  return h("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": "Table" },
    h("table", {}, h("thead", {}, row("th", head)), h("tbody", {}, rows.map((texts) => row("td", texts)))));
}

function spans(text) {
  return parseInline(text).map(spanNode);
}

function spanNode(span) {
  switch (span.kind) {
    case "code":
      return h("code", {}, span.text);
    case "link":
      return h("a", { href: span.url, title: span.url, target: "_blank", rel: "noopener noreferrer nofollow" },
        span.children.map(spanNode));
    case "text":
      return document.createTextNode(span.text);
    default:
      return h(span.kind, {}, span.children.map(spanNode));
  }
}
