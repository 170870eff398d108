// Questions to the person, as native dialogs: the browser holds the focus inside and gives it back.

import { byId, setText } from "./dom.js";

/** Opens a dialog; a click beside it closes it, as Escape does. */
export function open(dialog) {
  if (dialog.open) return;
  dialog.addEventListener("click", closeBeside);
  dialog.showModal();
}

/** Whether the person agrees. */
export async function confirm(title, text, verb) {
  return (await answered({ title, text, verb, value: null })) !== null;
}

/** The text that the person gives, or null. */
export function ask(title, label, value, verb = "Save") {
  return answered({ title, text: label, verb, value });
}

function answered({ title, text, verb, value }) {
  const dialog = byId("question");
  const form = dialog.querySelector("form");
  const field = byId("question-field");
  const label = byId("question-text");
  setText(byId("question-title"), title);
  setText(label, text);
  setText(byId("question-yes"), verb);
  byId("question-yes").classList.toggle("danger", value === null);
  field.hidden = value === null;
  field.value = value ?? "";
  return new Promise((resolve) => {
    let answer = null;
    const submitted = (event) => {
      event.preventDefault();
      answer = field.value.trim();
      dialog.close();
    };
    const closed = () => {
      form.removeEventListener("submit", submitted);
      resolve(answer);
    };
    form.addEventListener("submit", submitted);
    dialog.addEventListener("close", closed, { once: true });
    open(dialog);
    if (value !== null) field.select();
  });
}

function closeBeside(event) {
  if (event.target !== event.currentTarget) return;
  const box = event.currentTarget.getBoundingClientRect();
  const inside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top
    && event.clientY <= box.bottom;
  // Keys that press a button give a click without a place.
  if (!inside && (event.clientX || event.clientY)) event.currentTarget.close();
}
