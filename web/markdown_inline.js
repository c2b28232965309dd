// The inside of a paragraph, heading or cell: text to a list of strings and spans.
//
// strong, em, del {children} · code {text} · link {href, children} · break
const kMaxDepth = 8;
const kPlain = /[^\\`*_~![<h\n]+|h/y; // up to the next character that may start a span; h: a bare http address
const kAddress = /https?:\/\/[^\s<>"'`]+/y;
const kAngled = /<((?:https?:\/\/|mailto:)[^\s<>]+)>/y;

// Only these schemes become links; everything else stays the text it was.
export function safeHref(address) {
  return /^(?:https?:\/\/|mailto:)/i.test(address) ? address : null;
}

export function parseInline(text, depth = 0) {
  return new InlineParser(text, depth).run();
}

class InlineParser {
  #text;
  #depth;
  #at = 0;
  #spans = [];
  #plain = "";
  #hopeless = new Set(); // openings that were looked for to the end in vain: no later one finds a closing either

  constructor(text, depth) {
    this.#text = text;
    this.#depth = depth;
  }

  run() {
    while (this.#at < this.#text.length) {
      if (!this.#takeSpan()) this.#takePlain();
    }
    this.#flush();
    return this.#spans;
  }

  #takePlain() {
    kPlain.lastIndex = this.#at;
    const match = kPlain.exec(this.#text);
    const plain = match ? match[0] : this.#text[this.#at];
    this.#plain += plain;
    this.#at += plain.length;
  }

  #takeSpan() {
    switch (this.#text[this.#at]) {
      case "\\":
        return this.#takeEscape();
      case "\n":
        this.#plain = this.#plain.trimEnd();
        return this.#add({ type: "break" }, this.#at + 1);
      case "`":
        return this.#takeCode();
      case "*":
      case "_":
        return this.#takeEmphasis(2, "strong") || this.#takeEmphasis(1, "em");
      case "~":
        return this.#takeEmphasis(2, "del");
      case "!":
        return this.#text[this.#at + 1] === "[" && this.#takeLink(this.#at + 1); // images are not loaded, but linked
      case "[":
        return this.#takeLink(this.#at);
      case "<":
        return this.#takeAddress(kAngled);
      case "h":
        return !/\w/.test(this.#text[this.#at - 1] ?? "") && this.#takeAddress(kAddress);
      default:
        return false;
    }
  }

  #takeEscape() {
    const next = this.#text[this.#at + 1] ?? "";
    if (next === "\n") return this.#add({ type: "break" }, this.#at + 2);
    if (!/[!-/:-@[-`{-~]/.test(next)) return false;
    this.#plain += next;
    this.#at += 2;
    return true;
  }

  #takeCode() {
    const open = /`+/y;
    open.lastIndex = this.#at;
    const ticks = open.exec(this.#text)[0];
    const start = this.#at + ticks.length;
    if (!this.#hopeless.has(ticks)) {
      const close = new RegExp(`(?<!\`)\`{${ticks.length}}(?!\`)`, "g");
      close.lastIndex = start;
      const end = close.exec(this.#text)?.index;
      if (end !== undefined) {
        const code = this.#text.slice(start, end).replaceAll("\n", " ");
        return this.#add({ type: "code", text: code.trim() === "" ? code : code.replace(/^ (.*) $/, "$1") }, end + ticks.length);
      }
      this.#hopeless.add(ticks);
    }
    this.#plain += ticks;
    this.#at = start;
    return true;
  }

  #takeEmphasis(length, type) {
    const text = this.#text;
    const mark = text[this.#at].repeat(length);
    const start = this.#at + length;
    if (this.#depth >= kMaxDepth || this.#hopeless.has(mark) || !text.startsWith(mark, this.#at)) return false;
    if (/\s/.test(text[start] ?? " ")) return false;
    const wordly = mark[0] === "_"; // inside_a_word it is text
    if (wordly && /\w/.test(text[this.#at - 1] ?? "")) return false;
    for (let end = text.indexOf(mark, start + 1); end >= 0; end = text.indexOf(mark, end + 1)) {
      if (/[\s\\]/.test(text[end - 1])) continue;
      if (length === 1 && (text[end + 1] === mark || text[end - 1] === mark)) {
        if (text[end + 1] === mark) ++end; // a double mark belongs to something stronger inside
        continue;
      }
      if (length === 2 && text[end + 2] === mark[0]) ++end; // ***both***: the outer closing is the last one
      if (wordly && /\w/.test(text[end + length] ?? "")) continue;
      return this.#add({ type, children: parseInline(text.slice(start, end), this.#depth + 1) }, end + length);
    }
    this.#hopeless.add(mark);
    return false;
  }

  #takeLink(open) {
    if (this.#depth >= kMaxDepth || this.#hopeless.has("[")) return false;
    let level = 0;
    let close = open;
    for (; close < this.#text.length; ++close) {
      if (this.#text[close] === "\\") ++close;
      else if (this.#text[close] === "[") ++level;
      else if (this.#text[close] === "]" && --level === 0) break;
    }
    if (close >= this.#text.length) {
      this.#hopeless.add("[");
      return false;
    }
    const target = /\(\s*<?((?:[^\s()<>]|\([^\s()]*\))*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;
    target.lastIndex = close + 1;
    const match = target.exec(this.#text);
    const href = match && safeHref(match[1]);
    if (!href) return false;
    const label = this.#text.slice(open + 1, close) || href;
    return this.#add({ type: "link", href, children: parseInline(label, kMaxDepth) }, target.lastIndex);
  }

  #takeAddress(pattern) {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#text);
    if (!match) return false;
    const end = pattern.lastIndex;
    if (match[1]) return this.#add({ type: "link", href: match[1], children: [match[1]] }, end);
    let href = match[0].replace(/[.,;:!?*_~]+$/, "");
    if (href.endsWith(")") && !href.includes("(")) href = href.replace(/\)+[.,;:!?]*$/, "");
    return this.#add({ type: "link", href, children: [href] }, this.#at + href.length);
  }

  #add(span, next) {
    this.#flush();
    this.#spans.push(span);
    this.#at = next;
    return true;
  }

  #flush() {
    if (this.#plain) this.#spans.push(this.#plain);
    this.#plain = "";
  }
}
