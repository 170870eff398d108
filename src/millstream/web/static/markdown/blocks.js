// Text as blocks: a small part of CommonMark (https://spec.commonmark.org) and GitHub's tables. HTML is text here.

// No two neighbours of a pattern match the same characters: a long line takes time in proportion to its length.
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t](.*)|)$/;
const HEADING_END = /(^|[ \t])#+$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*)|)$/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_RULE = /^:?-+:?$/;
const DEEPEST = 12;
const COLUMNS = 50;

/**
 * @typedef {{source: string} & (
 *   {kind: "paragraph", text: string} | {kind: "heading", level: number, text: string}
 *   | {kind: "code", language: string, text: string, open: boolean} | {kind: "rule"}
 *   | {kind: "quote", blocks: Block[]} | {kind: "list", start: number|null, items: Block[][], loose: boolean}
 *   | {kind: "table", aligns: string[], head: string[], rows: string[][]})} Block
 * `source` is the text that it was made of: the same source gives the same block.
 * @returns {Block[]}
 */
export function parseBlocks(text) {
  return blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

function blocks(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const [block, end] = blockAt(lines, at, depth);
    found.push({ ...block, source: lines.slice(at, end).join("\n") });
    at = end;
  }
  return found;
}

/** The block that begins at a line, and the line behind it. */
function blockAt(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return codeAt(lines, at);
  const heading = HEADING.exec(line);
  if (heading) {
    const title = (heading[2] ?? "").trim().replace(HEADING_END, "").trim();
    return [{ kind: "heading", level: heading[1].length, text: title }, at + 1];
  }
  if (RULE.test(line)) return [{ kind: "rule" }, at + 1];
  if (depth < DEEPEST && QUOTE.test(line)) return quoteAt(lines, at, depth);
  if (depth < DEEPEST && ITEM.test(line)) return listAt(lines, at, depth);
  if (isTable(lines, at)) return tableAt(lines, at);
  return paragraphAt(lines, at, depth);
}

function codeAt(lines, at) {
  const [, fence, info] = FENCE.exec(lines[at]);
  const indent = lines[at].search(/\S/);
  const inside = [];
  let end = at + 1;
  let open = true;
  for (; end < lines.length && open; end += 1) {
    const close = FENCE.exec(lines[end]);
    open = !(close && close[1][0] === fence[0] && close[1].length >= fence.length && !close[2].trim());
    if (open) inside.push(lines[end].slice(0, indent).trim() ? lines[end] : lines[end].slice(indent));
  }
  return [{ kind: "code", language: info.trim().split(/\s/)[0].slice(0, 30), text: inside.join("\n"), open }, end];
}

function quoteAt(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  return [{ kind: "quote", blocks: blocks(lines.slice(at, end).map((line) => line.replace(QUOTE, "")), depth + 1) }, end];
}

function listAt(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first[2]);
  const items = [];
  let end = at;
  let loose = false;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (!item || RULE.test(lines[end]) || !sameKind(item[2], first[2])) break;
    const [inside, behind] = itemAt(lines, end, item);
    const gap = inside.findIndex((line) => line.trim() === "");
    loose ||= gap >= 0 && inside.slice(gap).some((line) => line.trim() !== "" && !ITEM.test(line));
    items.push(blocks(inside, depth + 1));
    end = behind;
    const next = skipEmpty(lines, end);
    if (next < lines.length && ITEM.test(lines[next]) && next > end) loose = true;
    if (next > end && !(next < lines.length && ITEM.test(lines[next]))) break;
    end = next;
  }
  return [{ kind: "list", start: ordered ? Number.parseInt(first[2], 10) : null, items, loose }, end];
}

/** The lines of one item without its indentation, and the line behind it. */
function itemAt(lines, at, [, indent, mark, space, rest]) {
  const wide = space && space.length <= 4 ? space.length : 1;
  const width = indent.length + mark.length + wide;
  const inside = [(space && space.length > 4 ? " ".repeat(space.length - 1) : "") + (rest ?? "")];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const deep = line.search(/\S/);
    if (deep < 0) {
      const next = skipEmpty(lines, end);
      if (next >= lines.length || lines[next].search(/\S/) < width) break;
      inside.push(...Array(next - end).fill(""));
      end = next - 1;
    } else if (deep >= width) {
      inside.push(line.slice(width));
    } else if (ITEM.test(line) || startsBlock(line) || lines[end - 1].trim() === "") {
      // Models indent nested items by two or three spaces, whatever the width of the mark above them.
      if (!(ITEM.test(line) && deep > indent.length + 1)) break;
      inside.push(line.slice(deep));
    } else {
      inside.push(line.trimStart());
    }
  }
  return [inside, end];
}

function paragraphAt(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !(depth < DEEPEST && interrupts(lines[end]))) {
    if (isTable(lines, end)) break;
    end += 1;
  }
  return [{ kind: "paragraph", text: lines.slice(at, end).map((line) => line.trim()).join("\n") }, end];
}

function isTable(lines, at) {
  const rule = lines[at + 1];
  if (!rule?.includes("-") || !lines[at].includes("|")) return false;
  const columns = cells(rule);
  return columns.every((cell) => TABLE_RULE.test(cell)) && cells(lines[at]).length === columns.length;
}

function tableAt(lines, at) {
  const head = cells(lines[at]);
  const aligns = cells(lines[at + 1]).map((cell) => {
    if (/^:.*:$/.test(cell)) return "center";
    return cell.endsWith(":") ? "end" : "start";
  });
  const rows = [];
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim() !== "") {
    const row = cells(lines[end]);
    rows.push(head.map((_, column) => row[column] ?? ""));
    end += 1;
  }
  return [{ kind: "table", aligns, head, rows }, end];
}

/** The cells of a row; `\|` and bars in code are part of a cell. */
function cells(line) {
  const row = line.trim().replace(/^\|/, "").replace(/([^\\]|^)\|$/, "$1");
  const found = [""];
  let code = false;
  for (let at = 0; at < row.length; at += 1) {
    if (row[at] === "\\" && row[at + 1] === "|") {
      found[found.length - 1] += "|";
      at += 1;
    } else if (row[at] === "|" && !code && found.length < COLUMNS) {
      found.push("");
    } else {
      if (row[at] === "`") code = !code;
      found[found.length - 1] += row[at];
    }
  }
  return found.map((cell) => cell.trim());
}

function startsBlock(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);
}

/** Whether a line ends the paragraph before it. Ordered lists do so only from 1 on: a line may begin with a year. */
function interrupts(line) {
  const item = ITEM.exec(line);
  return startsBlock(line) || Boolean(item?.[4] && (!/\d/.test(item[2]) || /^1[.)]/.test(item[2])));
}

function sameKind(mark, other) {
  return mark.at(-1) === other.at(-1) && /\d/.test(mark) === /\d/.test(other);
}

function skipEmpty(lines, at) {
  let next = at;
  while (next < lines.length && lines[next].trim() === "") next += 1;
  return next;
}
