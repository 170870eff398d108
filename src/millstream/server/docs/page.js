"use strict";

function node(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

// Text with `code` in it; never as HTML.
function prose(text) {
  const span = node("span", "");
  (text || "").split("`").forEach((part, index) => span.append(index % 2 ? node("code", "", part) : part));
  return span;
}

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(typeOf).filter((name) => name !== "null").join(" | ");
  if (schema.enum) return schema.enum.filter((value) => value !== null).map((value) => JSON.stringify(value)).join(" | ");
  if (Array.isArray(schema.type)) return schema.type.filter((name) => name !== "null").join(" | ");
  if (schema.type === "array") return "list of " + typeOf(schema.items || {});
  return schema.type || "any";
}

function fields(schema) {
  const table = node("table", "");
  table.append(node("tr", "", ...["field", "type", "", ""].map((title) => node("th", "", title))));
  const required = schema.required || [];
  for (const [name, property] of Object.entries(schema.properties || {})) {
    const status = property["x-millstream-status"] || "";
    const shown = required.includes(name) ? "required" : status;
    table.append(node("tr", status,
      node("td", "", node("code", "", name)), node("td", "", typeOf(property)),
      node("td", "status", shown), node("td", "", prose(property.description))));
  }
  return table;
}

function named(parameter) {
  return parameter.name + (parameter.schema.enum ? " (" + typeOf(parameter.schema) + ")" : "");
}

// What each media type of an answer holds; an answer without a body says what it means.
function contents(answer) {
  if (!answer.content) return [prose(answer.description)];
  return Object.entries(answer.content).flatMap(([kind, body]) => {
    const event = body["x-millstream-event"];
    const what = event ? "events " + typeOf(event) + ". " + body.schema.description : body.schema ? typeOf(body.schema) : "";
    return [node("code", "", kind), prose(" " + what + " ")];
  });
}

function operation(method, path, spec) {
  const inside = node("div", "inside");
  const body = spec.requestBody && spec.requestBody.content["application/json"].schema;
  if (body) inside.append(fields(body));
  const parameters = (spec.parameters || []).filter((parameter) => parameter.in === "query");
  if (parameters.length) inside.append(node("p", "about", "In the query: " + parameters.map(named).join(", ") + "."));
  for (const [status, answer] of Object.entries(spec.responses)) {
    inside.append(node("p", "about", status === "default" ? "Failures: " : status + ": ", ...contents(answer)));
  }
  return node("details", "", node("summary", "", node("span", "method", method.toUpperCase()),
    node("span", "path", path), node("span", "what", spec.summary)), inside);
}

function schemas(components) {
  const inside = node("div", "inside");
  for (const [name, schema] of Object.entries(components)) {
    inside.append(node("p", "path", name), node("pre", "", JSON.stringify(schema, null, 2)));
  }
  return node("details", "", node("summary", "", node("span", "what", "Structures")), inside);
}

async function show() {
  const page = document.getElementById("page");
  try {
    const answer = await fetch("openapi.json");
    const spec = await answer.json();
    page.replaceChildren(node("h1", "", spec.info.title + " " + spec.info.version),
      node("p", "about", prose(spec.info.description)));
    for (const [path, methods] of Object.entries(spec.paths)) {
      for (const [method, one] of Object.entries(methods)) page.append(operation(method, path, one));
    }
    page.append(schemas(spec.components.schemas));
  } catch (error) {
    page.replaceChildren(node("p", "", "The description of the API could not be read: " + error));
  }
}

show();
