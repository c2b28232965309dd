// Markdown text to a tree of plain objects: the part of CommonMark and its tables that models write. HTML is text here.
// Nesting is cut at kMaxDepth, so that no answer can make the page slow.
//
// paragraph {text} · heading {level, text} · code {language, text} · quote {blocks} · rule
// list {ordered, start, items: [{checked, blocks}]} · table {align: [..], head: [text], rows: [[text]]}
const kMaxDepth = 8;

const kFence = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const kHeading = /^ {0,3}(#{1,6})(?!\S)(.*)$/;
const kRule = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const kQuote = /^ {0,3}> ?/;
const kItem = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( {1,4})(?=\S)|( +|\t|$))/;
const kDivider = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const isBlank = (line) => /^\s*$/.test(line);
const indentOf = (line) => line.length - line.trimStart().length;

export function parseBlocks(text, depth = 0) {
  const lines = typeof text === "string" ? text.split("\n") : text;
  const blocks = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    let match;
    if (isBlank(line)) {
      ++at;
    } else if ((match = kFence.exec(line))) {
      at = takeFence(lines, at, match, blocks);
    } else if ((match = kHeading.exec(line))) {
      blocks.push({ type: "heading", level: match[1].length, text: match[2].trim().replace(/(?:^|\s)#+$/, "") });
      ++at;
    } else if (kRule.test(line)) {
      blocks.push({ type: "rule" });
      ++at;
    } else if (kQuote.test(line) && depth < kMaxDepth) {
      at = takeQuote(lines, at, blocks, depth);
    } else if (kItem.test(line) && depth < kMaxDepth) {
      at = takeList(lines, at, blocks, depth);
    } else if (startsTable(lines, at)) {
      at = takeTable(lines, at, blocks);
    } else {
      at = takeParagraph(lines, at, blocks);
    }
  }
  return blocks;
}

function takeFence(lines, at, [whole, fence, language], blocks) {
  const indent = indentOf(whole);
  const content = [];
  const closes = (line) => {
    const mark = line.trim();
    return indentOf(line) < 4 && mark.length >= fence.length && mark === fence[0].repeat(mark.length);
  };
  for (++at; at < lines.length && !closes(lines[at]); ++at) {
    content.push(lines[at].slice(Math.min(indent, indentOf(lines[at]))));
  }
  blocks.push({ type: "code", language, text: content.join("\n") });
  return at + 1; // an open fence runs to the end: the rest is still on its way
}

function takeQuote(lines, at, blocks, depth) {
  const inner = [];
  for (; at < lines.length && !isBlank(lines[at]); ++at) {
    if (!kQuote.test(lines[at]) && startsBlock(lines, at)) break;
    inner.push(lines[at].replace(kQuote, ""));
  }
  blocks.push({ type: "quote", blocks: parseBlocks(inner, depth + 1) });
  return at;
}

function takeList(lines, at, blocks, depth) {
  const marker = (line) => kItem.exec(line)?.[2];
  const first = marker(lines[at]);
  const list = { type: "list", ordered: /\d/.test(first), start: parseInt(first, 10) || 0, items: [] };
  while (at < lines.length) {
    const match = kItem.exec(lines[at]);
    if (!match || match[2].at(-1) !== first.at(-1) || kRule.test(lines[at])) break;
    const width = match[1].length + match[2].length + (match[3]?.length ?? 1);
    const inner = [lines[at].slice(width)];
    for (++at; at < lines.length; ++at) {
      const line = lines[at];
      if (isBlank(line)) {
        // a blank line belongs to the item when the next text does
        const next = lines.slice(at, at + 3).find((later) => !isBlank(later));
        if (next === undefined || indentOf(next) < width) break;
        inner.push("");
      } else if (indentOf(line) >= width) {
        inner.push(line.slice(width));
      } else if (startsBlock(lines, at) || isBlank(lines[at - 1])) {
        break;
      } else {
        inner.push(line);
      }
    }
    while (at < lines.length && isBlank(lines[at]) && at + 1 < lines.length && kItem.test(lines[at + 1])) ++at;
    const box = /^\[([ xX])\]\s+/.exec(inner[0]);
    if (box) inner[0] = inner[0].slice(box[0].length);
    list.items.push({ checked: box ? box[1] !== " " : null, blocks: parseBlocks(inner, depth + 1) });
  }
  blocks.push(list);
  return at;
}

const startsTable = (lines, at) =>
  lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("|") && kDivider.test(lines[at + 1]) &&
  cellsOf(lines[at]).length === cellsOf(lines[at + 1]).length;

// `|` ends a cell unless escaped or inside a code span.
function cellsOf(line) {
  const inner = line.trim().replace(/^\|/, "");
  const cells = [""];
  for (const [piece] of inner.matchAll(/`[^`]*`|\\?[^]/g)) {
    if (piece === "|") cells.push("");
    else cells[cells.length - 1] += piece === "\\|" ? "|" : piece;
  }
  if (inner.endsWith("|") && cells.at(-1) === "") cells.pop();
  return cells.map((cell) => cell.trim());
}

function takeTable(lines, at, blocks) {
  const head = cellsOf(lines[at]);
  const align = cellsOf(lines[at + 1]).map((cell) =>
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left",
  );
  const rows = [];
  for (at += 2; at < lines.length && !isBlank(lines[at]) && lines[at].includes("|"); ++at) {
    const cells = cellsOf(lines[at]);
    const rest = cells.splice(head.length).map((cell) => ` | ${cell}`).join(""); // no cell is lost
    rows.push(head.map((_, column) => (cells[column] ?? "") + (column === head.length - 1 ? rest : "")));
  }
  blocks.push({ type: "table", align, head, rows });
  return at;
}

function startsBlock(lines, at) {
  const line = lines[at];
  return kFence.test(line) || kHeading.test(line) || kRule.test(line) || kQuote.test(line) || kItem.test(line);
}

function takeParagraph(lines, at, blocks) {
  const inner = [lines[at].trimStart()];
  for (++at; at < lines.length && !isBlank(lines[at]); ++at) {
    if (startsBlock(lines, at) || startsTable(lines, at)) break;
    inner.push(lines[at].trimStart());
  }
  blocks.push({ type: "paragraph", text: inner.join("\n").trimEnd() });
  return at;
}
