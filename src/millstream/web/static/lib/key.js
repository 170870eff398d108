// The API key: kept for this tab, or on this device if the person says so.

const NAME = "millstream.key";

/** The key, or an empty text. */
export function key() {
  return read(sessionStorage) || read(localStorage);
}

/** Whether it outlives the tab. */
export function isRemembered() {
  return read(localStorage) !== "";
}

/** Takes another key; an empty one forgets it. */
export function setKey(text, remember) {
  for (const store of [sessionStorage, localStorage]) store.removeItem(NAME);
  if (text) (remember ? localStorage : sessionStorage).setItem(NAME, text);
}

function read(store) {
  return store.getItem(NAME) ?? "";
}
