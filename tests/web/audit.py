"""What can be told of a page's accessibility without a person: names, roles, ids, headings, contrast, sizes."""

from __future__ import annotations

from typing import Any

AUDIT = """() => {
  const wrong = [];
  const shown = (each) => each.checkVisibility({ visibilityProperty: true }) && !each.closest("[inert]");
  const at = (each) => `${each.localName}${each.id ? "#" + each.id : ""}.${each.getAttribute("class") ?? ""}`;

  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  if (new Set(ids).size !== ids.length) wrong.push("ids that are there twice");
  for (const name of ["aria-labelledby", "aria-describedby", "aria-controls", "for"]) {
    for (const each of document.querySelectorAll(`[${name}]`)) {
      for (const id of each.getAttribute(name).split(" ")) if (!ids.includes(id)) wrong.push(`${at(each)}: no ${id}`);
    }
  }

  const named = (each) => (each.getAttribute("aria-label") || each.textContent.trim() || each.title
    || [...(each.labels ?? [])].some((label) => label.textContent.trim()));
  const controls = "button, a[href], input:not([type=hidden]), select, textarea, summary, [role=button], dialog, nav";
  for (const each of document.querySelectorAll(controls)) {
    const label = each.getAttribute("aria-labelledby");
    if (shown(each) && !named(each) && !label) wrong.push(`${at(each)} has no name`);
  }
  for (const each of document.querySelectorAll("img:not([alt])")) wrong.push(`${at(each)} has no alt`);
  for (const each of document.querySelectorAll("svg")) {
    const told = each.getAttribute("aria-hidden") === "true" || each.querySelector("title");
    if (shown(each) && !told) wrong.push(`${at(each)}: a picture without a text`);
  }
  if (!document.documentElement.lang || !document.title) wrong.push("no language or title");
  const mains = [...document.querySelectorAll("main")].filter(shown);
  if (mains.length !== 1) wrong.push(`${mains.length} main landmarks`);
  if ([...document.querySelectorAll("h1")].filter(shown).length !== 1) wrong.push("not one first heading");

  const scrolls = [...document.querySelectorAll("*")].filter((each) => (
    shown(each) && each.scrollWidth > each.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(each).overflowX)
    && each.clientWidth && !/^(textarea|input|select)$/.test(each.localName) && each.id !== "scroller"));
  for (const each of scrolls) if (each.tabIndex < 0) wrong.push(`${at(each)} scrolls, and not by keys`);

  const parse = (text) => {
    const numbers = text.match(/[\\d.]+/g).map(Number);
    const scale = text.startsWith("color(") ? 255 : 1;
    return [...numbers.slice(0, 3).map((part) => part * scale), numbers[3] ?? 1];
  };
  const over = (top, below) => [0, 1, 2].map((part) => top[part] * top[3] + below[part] * (1 - top[3])).concat(1);
  const ground = (each) => {
    const layers = [];
    for (let up = each; up; up = up.parentElement) layers.push(parse(getComputedStyle(up).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const light = (color) => {
    const [r, g, b] = color.map((part) => part / 255).map((part) => (
      part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let judged = 0;
  for (const each of document.querySelectorAll("body *")) {
    const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const glyph = each.matches("svg.glyph");
    if (!(own || glyph) || !shown(each) || each.closest(":disabled, .offscreen, option, svg:not(.glyph)")) continue;
    judged += 1;
    const below = ground(each);
    const ink = over(parse(getComputedStyle(each).color), below);
    const [high, low] = [light(ink), light(below)].sort((one, other) => other - one);
    const ratio = (high + 0.05) / (low + 0.05);
    const text = each.textContent.trim().slice(0, 20);
    if (ratio < (glyph ? 3 : 4.5)) wrong.push(`${at(each)} “${text}” ${ratio.toFixed(2)}`);
  }
  if (judged < 10) wrong.push(`only ${judged} texts were judged`);
  return wrong;
}"""

WIDER = """() => [...document.querySelectorAll("body *")]
  .filter((each) => {
    const box = each.getBoundingClientRect();
    const hidden = !each.checkVisibility({ visibilityProperty: true }) || each.closest(".offscreen, .skip, [inert]");
    let clips = each.parentElement;
    while (clips && getComputedStyle(clips).overflowX === "visible") clips = clips.parentElement;
    return !hidden && (!clips || clips === document.documentElement) && box.width && box.right > innerWidth + 1;
  })
  .map((each) => `${each.localName}#${each.id}.${each.getAttribute("class")}`)
  .concat(document.documentElement.scrollWidth > innerWidth ? ["the page scrolls sideways"] : [])"""


async def faults(page: Any) -> list[str]:
    """What is wrong with what is shown now."""
    found: list[str] = await page.evaluate(AUDIT)
    return found


async def wider(page: Any) -> list[str]:
    """Elements that are wider than the screen and that nothing clips or scrolls."""
    found: list[str] = await page.evaluate(WIDER)
    return found
