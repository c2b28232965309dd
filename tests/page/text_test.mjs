// The parts of the page that need no browser: the event stream, chunks to messages, Markdown to objects.
import assert from "node:assert/strict";
import { test } from "node:test";
import { addChunk, newAnswer, openCalls, parseTools, requestBody, tokensPerSecond } from "../../web/conversation.js";
import { parseBlocks } from "../../web/markdown_blocks.js";
import { parseInline } from "../../web/markdown_inline.js";
import { EventReader } from "../../web/server_events.js";
import { defaultSettings } from "../../web/storage.js";

test("events are the same wherever the stream is cut", () => {
  const text = ': ping\r\n\r\ndata: {"a": 1}\n\ndata:two\ndata: lines\r\n\r\nevent: x\ndata\n\ndata: ü[DONE]\r\rrest';
  const whole = new EventReader().push(text);
  assert.deepEqual(whole, ['{"a": 1}', "two\nlines", "", "ü[DONE]"]);
  for (let cut = 0; cut <= text.length; ++cut) {
    const reader = new EventReader();
    assert.deepEqual([...reader.push(text.slice(0, cut)), ...reader.push(text.slice(cut))], whole, `cut at ${cut}`);
  }
});

test("chunks add up to an answer", () => {
  const chunk = (delta, rest = {}) => ({ choices: [{ index: 0, delta, finish_reason: null }], ...rest });
  const f = (text, more = {}) => ({ tool_calls: [{ index: 0, ...more, function: { ...(more.id && { name: "f" }), arguments: text } }] });
  const deltas = [{ role: "assistant", content: "" }, { reasoning_content: "h" }, { reasoning_content: "m" }, { content: "o" }, { content: "k" }, f("", { id: "c1" }), f('{"a"'), f(": 1}")];
  let answer = deltas.reduce((sum, delta, index) => addChunk(sum, chunk(delta), index), newAnswer());
  answer = addChunk(answer, { choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }], usage: { completion_tokens: 9 } }, 9);
  assert.equal(answer.reasoning, "hm");
  assert.equal(answer.content, "ok");
  assert.deepEqual(answer.calls, [{ id: "c1", name: "f", arguments: '{"a": 1}' }]);
  assert.equal(answer.end, "tool_calls");
  assert.deepEqual(answer.timing, { first_s: 1, reasoning_s: 2, total_s: 9 });
  assert.equal(tokensPerSecond(answer), 1);
  assert.deepEqual(openCalls([answer]), answer.calls);
  assert.deepEqual(openCalls([answer, { role: "tool", call_id: "c1", content: "" }]), []);
});

test("speed is not told from a span too short to measure", () => {
  assert.equal(tokensPerSecond({ usage: { completion_tokens: 28 }, timing: { first_s: 0.26, total_s: 0.2602 } }), null);
  assert.equal(tokensPerSecond({ usage: { completion_tokens: 1 }, timing: { first_s: 1, total_s: 9 } }), null);
});

test("empty settings are not sent", () => {
  assert.deepEqual(requestBody("m", [{ role: "user", content: "hi" }], { ...defaultSettings, thinking: false }), {
    model: "m",
    messages: [{ role: "user", content: "hi" }],
    thinking: { type: "disabled" },
  });
});

test("tools are taken with and without their envelope", () => {
  const wrapped = [{ type: "function", function: { name: "f" } }];
  assert.deepEqual(parseTools('[{"name": "f"}]'), wrapped);
  assert.deepEqual(parseTools(JSON.stringify(wrapped)), wrapped);
  for (const wrong of ["{", "{}", "[1]", "[{}]", "[null]"]) assert.throws(() => parseTools(wrong));
});

const blocks = {
  "a paragraph": ["one\ntwo\n\nthree", [{ type: "paragraph", text: "one\ntwo" }, { type: "paragraph", text: "three" }]],
  "headings": ["# A\n###### B ##\n#no", [{ type: "heading", level: 1, text: "A" }, { type: "heading", level: 6, text: "B" }, { type: "paragraph", text: "#no" }]],
  "a fence": ["```py\nx = [1]\n\n  y\n```\nafter", [{ type: "code", language: "py", text: "x = [1]\n\n  y" }, { type: "paragraph", text: "after" }]],
  "an open fence": ["~~~\n# not a heading", [{ type: "code", language: "", text: "# not a heading" }]],
  "a fence in a fence": ["````\n```\n````", [{ type: "code", language: "", text: "```" }]],
  "a rule": ["***\n- - -", [{ type: "rule" }, { type: "rule" }]],
  "a quote": ["> a\nb\n> > c", [{ type: "quote", blocks: [{ type: "paragraph", text: "a\nb" }, { type: "quote", blocks: [{ type: "paragraph", text: "c" }] }] }]],
  "an ordered list": ["3. a\n4. b", [{ type: "list", ordered: true, start: 3, items: [{ checked: null, blocks: [{ type: "paragraph", text: "a" }] }, { checked: null, blocks: [{ type: "paragraph", text: "b" }] }] }]],
  "a table": ["| a | b |\n|:-:|--:|\n| `x|y` | 1\\|2 |\n| only |", [{ type: "table", align: ["center", "right"], head: ["a", "b"], rows: [["`x|y`", "1|2"], ["only", ""]] }]],
};
for (const [name, [text, expected]] of Object.entries(blocks)) {
  test(`Markdown: ${name}`, () => assert.deepEqual(parseBlocks(text), expected));
}

test("Markdown: lists nest, hold blocks and know tasks", () => {
  const [list, after] = parseBlocks("- [x] a\n  - b\n- [ ] c\n\n  ```\n  d\n  ```\n\nend");
  assert.deepEqual(list.items.map((item) => item.checked), [true, false]);
  assert.deepEqual(list.items[0].blocks.map((block) => block.type), ["paragraph", "list"]);
  assert.deepEqual(list.items[1].blocks.map((block) => block.type), ["paragraph", "code"]);
  assert.deepEqual(after, { type: "paragraph", text: "end" });
});

const spans = {
  "**a** *b* __c__ _d_ ~~e~~": ["strong", " ", "em", " ", "strong", " ", "em", " ", "del"],
  "***both***": ["strong"],
  "snake_case_name 2 * 3 * 4": ["snake_case_name 2 * 3 * 4"],
  "`` a`b `` and `c": ["code", " and `c"],
  "\\*not\\* \\d": ["*not* \\d"],
  "a\nb": ["a", "break", "b"],
  "see https://example.org/a_b_c. And (http://x.org)": ["see ", "link", ". And (", "link", ")"],
  "<https://example.org> <b>": ["link", " <b>"],
  "[x](https://e.org/a_(b)) [y] [z](javascript:1)": ["link", " [y] [z](javascript:1)"],
  "**open": ["**open"],
};
for (const [text, expected] of Object.entries(spans)) {
  test(`Markdown spans: ${text}`, () => {
    assert.deepEqual(parseInline(text).map((span) => (typeof span === "string" ? span : span.type)), expected);
  });
}

// All text of blocks or spans, in their order.
function textOf(node) {
  if (typeof node === "string") return parseInline(node).map(spanText).join("");
  if (Array.isArray(node)) return node.map(textOf).join("");
  if (node.type === "code") return node.text;
  return ["text", "blocks", "items", "head", "rows"].map((key) => (key in node ? textOf(node[key]) : "")).join("");
}

function spanText(span) {
  return typeof span === "string" ? span : (span.text ?? (span.children ?? []).map(spanText).join(""));
}

test("Markdown: however a text is marked, its letters stay", () => {
  const pieces = ["*", "_", "**", "`", "[", "]", "~~", "a", "b", " ", "\n", "> ", "- ", "1. ", "|", "\\", "<", "h", "https://x"];
  const letters = (text) => text.match(/[abhx]/g)?.join("") ?? "";
  let state = 1;
  const next = (below) => (state = (state * 48271) % 2147483647) % below;
  for (let round = 0; round < 5000; ++round) {
    const text = Array.from({ length: next(30) }, () => pieces[next(pieces.length)]).join("");
    if (/`{3}|~{3}/.test(text)) continue; // words after a fence's language are not shown
    assert.equal(letters(textOf(parseBlocks(text))), letters(text), JSON.stringify(text));
  }
});

test("Markdown: no text is too long or too deep", () => {
  for (const piece of ["*a ", "_", "[", "`", "**a", "> ", "- ", "  - a\n", "|", "a|b\n-|-\n", "![", "~~a", "***a", "`a``"]) {
    assert.ok(textOf(parseBlocks(piece.repeat(20_000))) !== undefined, piece);
  }
});
