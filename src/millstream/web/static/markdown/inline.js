// The inside of a paragraph as a tree: code, emphasis, links. Linear in the length of the text: a closer that was once
// not found behind a place is not looked for behind later ones.

const DEEPEST = 8;
const SPECIAL = /[\\`*_~[!<h]/g;
const URL_START = /https?:\/\/[^\s<>"'`]{1,2000}/y;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}_]/u;
const LINK_LENGTH = 2000;

/**
 * @typedef {{kind: "text"|"code", text: string} | {kind: "em"|"strong"|"del", children: Span[]}
 *   | {kind: "link", url: string, children: Span[]}} Span
 * @returns {Span[]}
 */
export function parseInline(text, depth = 0) {
  const spans = [];
  const missing = new Set();
  let plain = "";
  let at = 0;
  const put = (span) => {
    if (plain) spans.push({ kind: "text", text: plain });
    plain = "";
    spans.push(span);
  };
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const next = SPECIAL.exec(text)?.index ?? text.length;
    plain += text.slice(at, next);
    at = next;
    if (at === text.length) break;
    const found = special(text, at, depth, missing);
    if (found?.span) put(found.span);
    else plain += found?.text ?? text[at];
    at = found?.end ?? at + 1;
  }
  if (plain) spans.push({ kind: "text", text: plain });
  return spans;
}

/** What begins at a special character: a span, or text that stands for itself; null if it is only that character. */
function special(text, at, depth, missing) {
  switch (text[at]) {
    case "\\":
      return escaped(text, at);
    case "`":
      return code(text, at, missing);
    case "[":
      return link(text, at, at + 1, depth);
    case "!":
      // An image would be a request to somebody else: it is shown as a link.
      return text[at + 1] === "[" ? link(text, at, at + 2, depth) : null;
    case "<":
      return angled(text, at);
    case "h":
      return bare(text, at);
    default:
      return emphasis(text, at, depth, missing);
  }
}

function escaped(text, at) {
  const next = text[at + 1];
  return next !== undefined && ESCAPABLE.test(next) ? { text: next, end: at + 2 } : null;
}

function code(text, at, missing) {
  const fence = runAt(text, at);
  const close = runOf(text, fence, at + fence.length, missing);
  if (close < 0) return { text: fence, end: at + fence.length };
  let inside = text.slice(at + fence.length, close).replaceAll("\n", " ");
  if (inside.startsWith(" ") && inside.endsWith(" ") && inside.trim()) inside = inside.slice(1, -1);
  return { span: { kind: "code", text: inside }, end: close + fence.length };
}

function runAt(text, at) {
  let end = at + 1;
  while (text[end] === text[at]) end += 1;
  return text.slice(at, end);
}

/** Where a run of exactly this many backticks is. */
function runOf(text, fence, from, missing) {
  if (missing.has(fence)) return -1;
  for (let at = text.indexOf(fence, from); at >= 0; at = text.indexOf(fence, at)) {
    const run = runAt(text, at);
    if (run.length === fence.length) return at;
    at += run.length;
  }
  missing.add(fence);
  return -1;
}

function link(text, at, inside, depth) {
  if (depth >= DEEPEST) return null;
  const length = text.slice(inside, inside + LINK_LENGTH).indexOf("](");
  const middle = inside + length;
  const label = text.slice(inside, middle);
  if (length < 0 || label.includes("[")) return null;
  const end = closingParenthesis(text, middle + 2);
  if (end < 0) return null;
  const url = text.slice(middle + 2, end).trim().split(/\s/)[0].replace(/^<|>$/g, "");
  const children = parseInline(label || url, depth + 1);
  const safe = safeUrl(url);
  // What leads nowhere safe stays what was written.
  return safe
    ? { span: { kind: "link", url: safe, children: withoutLinks(children) }, end: end + 1 }
    : { text: text.slice(at, end + 1), end: end + 1 };
}

function closingParenthesis(text, from) {
  let open = 1;
  const limit = Math.min(text.length, from + LINK_LENGTH);
  for (let at = from; at < limit; at += 1) {
    if (text[at] === "\n") return -1;
    if (text[at] === "(") open += 1;
    if (text[at] === ")") open -= 1;
    if (open === 0) return at;
  }
  return -1;
}

function angled(text, at) {
  const close = text.slice(at, at + LINK_LENGTH).indexOf(">");
  if (close < 0) return null;
  const url = safeUrl(text.slice(at + 1, at + close));
  return url && /^(https?:\/\/|mailto:)\S+$/i.test(text.slice(at + 1, at + close))
    ? { span: { kind: "link", url, children: [{ kind: "text", text: text.slice(at + 1, at + close) }] }, end: at + close + 1 }
    : null;
}

function bare(text, at) {
  URL_START.lastIndex = at;
  const found = WORD.test(text[at - 1] ?? "") ? null : URL_START.exec(text)?.[0];
  if (!found) return null;
  // The end of a sentence, or a bracket around the address, is not part of it.
  let shown = found.replace(/[.,;:!?*_~\]}]+$/, "");
  if (shown.endsWith(")") && !shown.includes("(")) shown = shown.slice(0, -1);
  const url = safeUrl(shown);
  return url ? { span: { kind: "link", url, children: [{ kind: "text", text: shown }] }, end: at + shown.length } : null;
}

function emphasis(text, at, depth, missing) {
  const run = runAt(text, at);
  const size = run[0] === "~" ? 2 : Math.min(run.length, 2);
  const after = text[at + run.length] ?? "";
  const canOpen = depth < DEEPEST && run.length <= 3 && (run[0] !== "~" || run.length === 2) && /\S/.test(after)
    && !(run[0] === "_" && WORD.test(text[at - 1] ?? ""));
  const mark = run.slice(0, run.length === 3 ? 3 : size);
  const close = canOpen ? closer(text, mark, at + mark.length, missing) : -1;
  if (close < 0) return { text: run, end: at + run.length };
  const children = parseInline(text.slice(at + mark.length, close), depth + 1);
  const end = close + mark.length;
  if (mark.length === 3) return { span: { kind: "em", children: [{ kind: "strong", children }] }, end };
  return { span: { kind: mark[0] === "~" ? "del" : mark.length === 2 ? "strong" : "em", children }, end };
}

/** Where a mark closes: a run of its size behind something that is not a space. */
function closer(text, mark, from, missing) {
  if (missing.has(mark)) return -1;
  for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at)) {
    const run = runAt(text, at);
    const closes = /\S/.test(text[at - 1] ?? " ") && text[at - 1] !== "\\"
      && !(mark[0] === "_" && WORD.test(text[at + run.length] ?? ""));
    if (closes && run.length === mark.length) return at;
    // `**a *b***`: the inner one ends first, the outer one at the end of the run.
    if (closes && run.length === 3 && mark.length < 3) return at + run.length - mark.length;
    at += run.length;
  }
  missing.add(mark);
  return -1;
}

/** The address in its normal form, or null unless it is one of the web or of a mailbox. */
export function safeUrl(text) {
  if (!/^(https?:|mailto:)/i.test(text)) return null;
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function withoutLinks(spans) {
  return spans.flatMap((span) => {
    if (span.kind === "link") return withoutLinks(span.children);
    return span.children ? [{ ...span, children: withoutLinks(span.children) }] : [span];
  });
}
