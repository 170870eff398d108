// Elements, made from values and never from markup: text stays text, whatever is in it.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. Attributes: `on…` functions are listeners, true is an empty attribute, false, null and undefined none.
 * Children: nodes or text; null, undefined and false are left out.
 */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** The element with an id, which has to be there. */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`The page has no #${id}`);
  return found;
}

/** Sets the text of an element, and leaves the document alone if it is that already. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A button with a picture; its label is read aloud and shown on hover. */
export function iconButton(name, label, onclick, attributes = {}) {
  return h("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick, ...attributes },
    icon(name));
}

/** A picture of the sprite. */
export function icon(name) {
  return svg("svg", { class: "glyph", "aria-hidden": "true", focusable: "false" },
    svg("use", { href: `/assets/icons.svg#${name}` }));
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
