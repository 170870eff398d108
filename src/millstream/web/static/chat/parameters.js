// The parameters of a conversation: which there are, what may be in their fields, and the form.

import { byId, setText } from "../lib/dom.js";
import { open } from "../lib/dialogs.js";

const LARGEST_SEED = 2n ** 63n;

/** By the field of a request: from what is typed to its value (null: not set). Each raises an Error with what to do. */
const FIELDS = {
  system: { read: (text) => text.trim() || null, write: (value) => value },
  temperature: { read: (text) => ranged(text, 0, 2), write: String },
  top_p: { read: (text) => ranged(text, Number.MIN_VALUE, 1, "above 0 and up to 1"), write: String },
  max_completion_tokens: { read: (text) => whole(text, 1n), write: String },
  seed: { read: (text) => whole(text, -LARGEST_SEED), write: String },
  stop: { read: lines, write: (value) => value.join("\n") },
  response_format: { read: responseFormat, write: (value) => JSON.stringify(value.json_schema?.schema ?? {}, null, 2) },
  tools: { read: tools, write: (value) => JSON.stringify(value, null, 2) },
};

/** The known members of an object, which may come from a file. */
export function fieldsOf(value) {
  const known = Object.entries(value ?? {}).map(([name, set]) => [name, legal(name, set)]);
  return Object.fromEntries(known.filter(([, set]) => set !== null));
}

/** The dialog. `saved` is called with parameters that are all legal. */
export class ParameterForm {
  #dialog = byId("parameters");
  #form = byId("parameters-form");
  #saved;

  constructor(saved) {
    this.#saved = saved;
    this.#form.addEventListener("submit", (event) => this.#submit(event));
    this.#form.addEventListener("reset", () => setTimeout(() => this.#showKind()));
    this.#kind().addEventListener("change", () => this.#showKind());
  }

  /** Shows the parameters to the person. */
  show(parameters) {
    for (const [name, { write }] of Object.entries(FIELDS)) {
      const value = parameters[name] ?? null;
      this.#field(name).value = value === null ? "" : write(value);
      this.#complain(name, "");
    }
    this.#kind().value = parameters.response_format?.type ?? "text";
    this.#showKind();
    open(this.#dialog);
  }

  #submit(event) {
    event.preventDefault();
    const parameters = {};
    let wrong = null;
    for (const [name, { read }] of Object.entries(FIELDS)) {
      try {
        const value = read(this.#field(name).value, this.#kind().value);
        if (value !== null) parameters[name] = value;
        this.#complain(name, "");
      } catch (error) {
        this.#complain(name, error.message);
        wrong ??= this.#field(name);
      }
    }
    if (wrong) {
      wrong.focus();
      return;
    }
    this.#dialog.close();
    this.#saved(parameters);
  }

  #complain(name, text) {
    setText(byId(`parameter-${name}-problem`), text);
    if (text) this.#field(name).setAttribute("aria-invalid", "true");
    else this.#field(name).removeAttribute("aria-invalid");
  }

  #field(name) {
    return byId(`parameter-${name}`);
  }

  #kind() {
    return byId("parameter-response_kind");
  }

  #showKind() {
    byId("parameter-response_format-box").hidden = this.#kind().value !== "json_schema";
  }
}

/** How many parameters are set: what the button shows. */
export function countOf(parameters) {
  return Object.keys(parameters).length;
}

/** A value as the form would give it; null if it is none. */
function legal(name, value) {
  try {
    const kind = name === "response_format" ? value.type : "text";
    return FIELDS[name].read(FIELDS[name].write(value), kind);
  } catch {
    return null;
  }
}

function ranged(text, least, most, range = `from ${least} to ${most}`) {
  if (!text.trim()) return null;
  const value = Number(text.trim().replace(",", "."));
  if (!(value >= least && value <= most)) throw new Error(`Give a number ${range}, or leave it empty.`);
  return value;
}

function whole(text, least) {
  if (!text.trim()) return null;
  const value = /^[+-]?\d{1,19}$/.test(text.trim()) ? BigInt(text.trim()) : null;
  if (value === null || value < least || value >= LARGEST_SEED) {
    throw new Error(`Give a whole number${least > 0n ? ` from ${least} on` : ""}, or leave it empty.`);
  }
  // JSON's numbers are exact up to 2^53 here; larger seeds would be other seeds.
  if (!Number.isSafeInteger(Number(value))) throw new Error("Give a number of at most 15 digits.");
  return Number(value);
}

function lines(text) {
  const found = text.split("\n").filter((line) => line !== "");
  if (found.length > 16) throw new Error("Give at most 16 of them.");
  return found.length ? found : null;
}

function responseFormat(text, kind) {
  if (kind === "json_object") return { type: "json_object" };
  if (kind !== "json_schema") return null;
  const schema = json(text);
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) throw new Error("A schema is an object: {…}.");
  return { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
}

function tools(text) {
  if (!text.trim()) return null;
  const given = json(text);
  const list = Array.isArray(given) ? given : [given];
  if (!list.length) return null;
  return list.map((tool) => {
    // Both the wire form and a bare function are taken.
    const called = tool?.type === "function" && tool.function ? tool.function : tool;
    if (typeof called?.name !== "string") throw new Error("Each tool needs a “name”, and “parameters” if it has any.");
    return { type: "function", function: called };
  });
}

function json(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${error.message}`);
  }
}
