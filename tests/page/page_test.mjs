// The page at "/", as a reader uses it. The mini model answers, but where a test needs certain words or calls the
// answer is put in place by the browser.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { installed, model, startServer } from "../e2e/served.mjs";
import { ChatPage, sizes, startBrowser } from "./browser.mjs";
import { holdAnswers } from "./held_server.mjs";

const greedy = { temperature: "0", max_tokens: "80" };
const quick = { ...greedy, thinking: false };

let server, held, browser, chat;

before(async () => {
  [server, browser] = await Promise.all([startServer(), startBrowser()]);
  held = await holdAnswers(server.url);
});

after(async () => {
  await browser?.close();
  held?.stop();
  await server?.stop();
});

async function open(options) {
  chat = await ChatPage.open(browser, server.url, options);
  return chat;
}

// In the middle of an answer that does not end by itself.
async function openAnswering() {
  chat = await ChatPage.open(browser, held.url, { settings: quick });
  await chat.say("What is 34 + 57?");
  await chat.answers.last().locator(".content").waitFor();
  return chat;
}

afterEach(async () => {
  await chat?.close();
  chat = undefined;
});

function assertNoProblems() {
  assert.deepEqual(chat.problems, []);
}

// ---- A conversation ----

test("a message is answered, with its thinking folded and its speed", async () => {
  const { page, box } = await open({ settings: greedy });
  await page.getByText(model).waitFor();
  const answer = await chat.ask("What is 34 + 57?");
  assert.match(await answer.locator(".content").innerText(), /91/);
  assert.ok(await box.evaluate((element) => element === document.activeElement), "the box keeps the focus");
  const thinking = answer.locator("details");
  assert.equal(await thinking.getAttribute("open"), null);
  assert.match(await thinking.locator("summary").innerText(), /^Thought for \d+\.\d s$/);
  await thinking.locator("summary").click();
  assert.notEqual(await thinking.locator("div").innerText(), "");
  assert.match(await answer.locator(".figures").innerText(), /^\d+ tokens · (\d+\.\d tokens\/s · )?first after \d+\.\d\d s$/);
  assert.equal(await page.title(), "What is 34 + 57? · deepinfer");
  assertNoProblems();
});

test("an answer is shown while it streams, and Stop keeps what had arrived", async () => {
  const { stopButton, box, page } = await openAnswering();
  assert.equal(await page.getByRole("main").getAttribute("aria-busy"), "true");
  await stopButton.click();
  const answer = await chat.answer();
  assert.match(await answer.locator(".figures").innerText(), /stopped/);
  assert.notEqual((await answer.locator(".content").innerText()).trim(), "");
  await page.getByRole("button", { name: "Send" }).waitFor();
  assert.ok(await box.isEnabled());
  assertNoProblems();
});

test("Escape stops an answer and hangs up, so that the server can stop too", async () => {
  const { page } = await openAnswering();
  assert.equal(held.open.size, 1);
  await page.keyboard.press("Escape");
  await chat.answer();
  for (const deadline = Date.now() + 10_000; held.open.size > 0; ) {
    assert.ok(Date.now() < deadline, "the connection is still open");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
});

test("an edited message replaces what followed it", async () => {
  const { page } = await open({ settings: greedy });
  await chat.ask("What is 34 + 57?");
  await chat.ask("What is 2 + 2?");
  await chat.users.first().getByRole("button", { name: "Edit" }).click();
  const edit = page.getByRole("textbox", { name: "Edit message" });
  assert.equal(await edit.inputValue(), "What is 34 + 57?");
  await edit.fill("What is 12 + 13?");
  await edit.press("Enter");
  const answer = await chat.answer();
  assert.match(await answer.locator(".content").innerText(), /25/);
  assert.equal(await chat.users.count(), 1);
  assert.equal(await chat.answers.count(), 1);
});

test("Escape gives an edit up", async () => {
  const { page } = await open({ settings: greedy });
  await chat.ask("What is 34 + 57?");
  await chat.users.first().getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: "Edit message" }).fill("nothing");
  await page.keyboard.press("Escape");
  assert.equal(await chat.users.first().locator(".bubble").innerText(), "What is 34 + 57?");
});

test("an answer can be asked for again", async () => {
  await open();
  const requests = await chat.script({ deltas: [{ content: "first" }] }, { deltas: [{ content: "second" }] });
  const answer = await chat.ask("Hello");
  await answer.getByRole("button", { name: "Try again" }).click();
  await chat.page.getByText("second", { exact: true }).waitFor();
  assert.equal(await chat.answers.count(), 1);
  assert.deepEqual(requests[1].messages, [{ role: "user", content: "Hello" }]);
});

test("the conversation so far is sent along", async () => {
  await open({ settings: { system: "Be brief." } });
  const requests = await chat.script({ deltas: [{ reasoning_content: "hm" }, { content: "one" }] }, { deltas: [{ content: "two" }] });
  await chat.ask("First");
  await chat.ask("Second");
  assert.deepEqual(requests[1].messages, [
    { role: "system", content: "Be brief." },
    { role: "user", content: "First" },
    { role: "assistant", content: "one", reasoning_content: "hm" },
    { role: "user", content: "Second" },
  ]);
});

test("Shift+Enter starts a line, blank messages are not sent", async () => {
  const { box, page } = await open();
  const requests = await chat.script({ deltas: [{ content: "ok" }] });
  await box.press("Enter");
  await page.keyboard.type("   ");
  await box.press("Enter");
  assert.equal(requests.length, 0);
  await box.fill("one");
  await box.press("Shift+Enter");
  await page.keyboard.type("two");
  await box.press("Enter");
  await chat.answer();
  assert.equal(requests[0].messages[0].content, "one\ntwo");
});

// ---- History ----

test("chats are kept in the browser, opened again and deleted", async () => {
  const { page } = await open({ settings: greedy });
  await chat.ask("What is 34 + 57?");
  await page.getByRole("button", { name: "New chat" }).click();
  await chat.ask("What is 2 + 2?");
  await page.reload();
  const list = page.getByRole("navigation", { name: "Chats" });
  assert.equal(await chat.answers.count(), 0, "a reload starts a new chat");
  await list.getByRole("button", { name: "What is 34 + 57?", exact: true }).click();
  assert.match(await chat.answers.first().locator(".content").innerText(), /91/);
  page.once("dialog", (dialog) => dialog.accept());
  await list.getByRole("button", { name: "Delete chat: What is 34 + 57?" }).click();
  await page.reload();
  assert.deepEqual(await list.locator(".title").allInnerTexts(), ["What is 2 + 2?"]);
  assertNoProblems();
});

test("an answer cut by closing the page is kept and says so", async () => {
  const { page } = await openAnswering();
  await page.reload();
  await page.getByRole("navigation", { name: "Chats" }).getByRole("button", { name: "What is 34 + 57?", exact: true }).click();
  assert.notEqual((await chat.answers.last().locator(".content").innerText()).trim(), "");
  assert.match(await chat.answers.last().locator(".figures").innerText(), /interrupted/);
});

test("two tabs show the same chats", async () => {
  const { page, context } = await open({ settings: greedy });
  const other = await context.newPage();
  await other.goto(`${server.url}/`);
  await page.bringToFront();
  await chat.ask("What is 34 + 57?");
  await other.getByRole("navigation", { name: "Chats" }).getByRole("button", { name: "What is 34 + 57?", exact: true }).waitFor();
});

test("a chat goes on while another is read", async () => {
  const { page } = await openAnswering();
  await page.getByRole("button", { name: "New chat" }).click();
  assert.equal(await chat.answers.count(), 0);
  assert.equal(held.open.size, 1);
  await page.getByRole("navigation", { name: "Chats" }).getByRole("button", { name: /^What is 34/ }).click();
  await chat.stopButton.click();
  assert.match(await (await chat.answer()).locator(".figures").innerText(), /stopped/);
});

// ---- Settings ----

test("settings reach the request and are kept", async () => {
  const { page } = await open();
  const requests = await chat.script({ deltas: [{ content: "ok" }] }, { deltas: [{ content: "ok" }] });
  await page.getByRole("button", { name: "Settings" }).click();
  const dialog = page.getByRole("dialog", { name: "Settings" });
  await dialog.getByLabel("System prompt").fill("You are terse.");
  await dialog.getByLabel("Effort").selectOption("max");
  await dialog.getByLabel("Temperature").fill("0.5");
  await dialog.getByLabel("Top-p").fill("0.9");
  await dialog.getByLabel("Top-k").fill("40");
  await dialog.getByLabel("Min-p").fill("0.05");
  await dialog.getByLabel("Most tokens").fill("123");
  await dialog.getByLabel("Seed").fill("7");
  await dialog.getByLabel("Stop sequences").fill("END\nSTOP");
  await dialog.getByLabel("Tools").fill('[{"name": "f", "parameters": {"type": "object"}}]');
  await dialog.getByRole("button", { name: "Done" }).click();
  await page.reload();
  await chat.ask("Hello");
  const { messages, ...fields } = requests[0];
  assert.deepEqual(messages[0], { role: "system", content: "You are terse." });
  assert.deepEqual(fields, {
    model,
    stream: true,
    stream_options: { include_usage: true },
    thinking: { type: "enabled" },
    reasoning_effort: "max",
    temperature: 0.5,
    top_p: 0.9,
    top_k: 40,
    min_p: 0.05,
    max_tokens: 123,
    seed: 7,
    stop: ["END", "STOP"],
    tools: [{ type: "function", function: { name: "f", parameters: { type: "object" } } }],
  });
});

test("every setting is one that the server takes", async () => {
  const tools = '[{"name": "get_weather", "parameters": {"type": "object"}}]';
  const settings = { effort: "high", temperature: "0.5", top_p: "0.9", top_k: "40", min_p: "0.05", max_tokens: "8", seed: "7", stop: "END", tools };
  await open({ settings });
  const answer = await chat.ask("Hello");
  assert.match(await answer.locator(".figures").innerText(), /\d tokens/);
  assertNoProblems();
});

test("a setting out of range or a broken tool list is refused with the reason", async () => {
  const { page } = await open();
  const requests = await chat.script({ deltas: [{ content: "ok" }] });
  await page.keyboard.press("Control+,");
  const dialog = page.getByRole("dialog", { name: "Settings" });
  await dialog.getByLabel("Temperature").fill("7");
  await dialog.getByLabel("Tools").fill("[{]");
  assert.equal(await dialog.getByRole("alert").count(), 2);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  await chat.ask("Hello");
  assert.equal(requests[0].temperature, undefined);
  assert.equal(requests[0].tools, undefined);
});

// ---- Tool calls ----

test("tool calls are shown, and the answer goes on once each has a result", async () => {
  const { page } = await open();
  const call = (index, id, city) => ({ index, id, type: "function", function: { name: "get_weather", arguments: `{"city": "${city}"}` } });
  const requests = await chat.script(
    { deltas: [{ tool_calls: [{ ...call(0, "c1", "Rome"), function: { name: "get_weather", arguments: '{"city"' } }] }, { tool_calls: [{ index: 0, function: { arguments: ': "Rome"}' } }] }, { tool_calls: [call(1, "c2", "Oslo")] }], finish_reason: "tool_calls" },
    { deltas: [{ content: "Sunny in Rome." }] },
  );
  const answer = await chat.ask("Weather?");
  const calls = answer.getByRole("region", { name: "Call of tool get_weather" });
  assert.equal(await calls.count(), 2);
  assert.equal(await calls.first().locator("code").innerText(), '{\n  "city": "Rome"\n}');
  await calls.first().getByRole("textbox").fill("sunny");
  await calls.first().getByRole("button", { name: "Give result" }).click();
  assert.equal(requests.length, 1, "a call waits still");
  await calls.last().getByRole("textbox").fill("rain");
  await calls.last().getByRole("button", { name: "Give result" }).click();
  await page.getByText("Sunny in Rome.", { exact: true }).waitFor();
  assert.deepEqual(requests[1].messages.slice(1), [
    { role: "assistant", content: "", tool_calls: [call(0, "c1", "Rome"), call(1, "c2", "Oslo")].map(({ index, ...rest }) => rest) },
    { role: "tool", tool_call_id: "c1", content: "sunny" },
    { role: "tool", tool_call_id: "c2", content: "rain" },
  ]);
});

// ---- What can go wrong ----

test("an error of the server is shown, and the message can be sent again", async () => {
  await open({ settings: { ...greedy, max_tokens: "99999999" } });
  const answer = await chat.ask("Hello");
  assert.match(await answer.getByRole("alert").innerText(), /valid range of max_tokens/);
  assert.ok(await answer.getByRole("button", { name: "Try again" }).isVisible());
});

test("a lost connection is told from the end of an answer", async () => {
  const { page } = await open();
  const body = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: "half an ans" }, finish_reason: null }] })}\n\n`;
  await page.route("**/v1/chat/completions", (route) => route.fulfill({ contentType: "text/event-stream", body }));
  const answer = await chat.ask("Hello");
  assert.equal(await answer.locator(".content").innerText(), "half an ans");
  assert.match(await answer.getByRole("alert").innerText(), /connection ended/);
});

test("without the server the page says so and tries again", async () => {
  held.cut.add("/v1/models");
  chat = await ChatPage.open(browser, held.url);
  const { page } = chat;
  await page.getByText("The server cannot be reached.").waitFor();
  held.cut.clear();
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByText(model).waitFor();
});

test("nothing that a model writes becomes markup, script or a request", async () => {
  const { page } = await open();
  const hostile = [
    '<img src="http://127.0.0.1:9/x.png" onerror="window.broken = 1"><script>window.broken = 1</script>',
    "![pixel](http://127.0.0.1:9/y.png)",
    "[a](javascript:window.broken=1) [b](data:text/html,x) [c](java\nscript:x) <javascript:x> [d](//127.0.0.1/) [e](https://example.org/)",
    '[f](https://example.org/"onmouseover="x)',
    "| <b>x</b> | `a|b` |\n|---|---|\n| <i>y</i> | z |",
    "```html\n</code></pre><script>window.broken = 1</script>\n```",
  ].join("\n\n");
  await chat.script({ deltas: [{ reasoning_content: "<script>window.broken = 1</script>" }, { content: hostile }] });
  const answer = await chat.ask("<img src=x onerror='window.broken = 1'>");
  assert.equal(await page.evaluate("window.broken"), undefined);
  assert.equal(await page.locator("img, iframe, object, embed, article script, article b, article i").count(), 0);
  const links = await answer.locator("a").evaluateAll((all) => all.map((link) => [link.getAttribute("href"), link.rel]));
  const rel = "noopener noreferrer";
  assert.deepEqual(links, [["http://127.0.0.1:9/x.png", rel], ["http://127.0.0.1:9/y.png", rel], ["https://example.org/", rel], ['https://example.org/"onmouseover="x', rel]]);
  assertNoProblems();
});

test("the page may load nothing but its own files", async () => {
  const response = await fetch(`${server.url}/`);
  const policy = response.headers.get("content-security-policy");
  for (const part of ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"]) assert.ok(policy.includes(part), part);
  assert.equal((await fetch(`${server.url}/page.js`)).headers.get("content-type"), "text/javascript; charset=utf-8");
});

// ---- Sizes, colours, keyboard, screen readers ----

test("at phone width nothing scrolls sideways and the chats are a drawer", async () => {
  const { page } = await open({ viewport: sizes.phone, hasTouch: true });
  const wide = `| ${"column | ".repeat(12)}\n|${"---|".repeat(12)}\n\n\`\`\`\n${"x".repeat(300)}\n\`\`\`\n\n${"y".repeat(300)}`;
  await chat.script({ deltas: [{ content: wide }] });
  await chat.ask("z".repeat(300));
  assert.equal(await page.evaluate("document.documentElement.scrollWidth"), sizes.phone.width);
  assert.equal(await page.getByRole("main").evaluate((main) => main.scrollWidth - main.clientWidth), 0);
  const list = page.getByRole("navigation", { name: "Chats" });
  await list.waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "Chats", exact: true }).tap();
  await list.waitFor();
  await list.getByRole("button", { name: "New chat" }).tap();
  await list.waitFor({ state: "hidden" });
  assert.equal(await chat.answers.count(), 0);
});

test("colours follow the system or the setting", async () => {
  const { page } = await open({ colorScheme: "dark" });
  const lightness = () => page.evaluate(() => Math.max(...getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number)));
  assert.ok((await lightness()) < 64);
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Appearance").selectOption("light");
  assert.ok((await lightness()) > 192);
});

test("everything can be reached by keyboard, and the focus comes back from the settings", async () => {
  const { page, box } = await open({ settings: greedy });
  await chat.ask("What is 34 + 57?");
  await page.evaluate("document.activeElement.blur()");
  const reached = [];
  for (let press = 0; press < 20; ++press) {
    await page.keyboard.press("Tab");
    const name = await page.evaluate(() => {
      const at = document.activeElement;
      return at.getAttribute("aria-label") ?? (at.tagName === "SUMMARY" ? "Thinking" : at.innerText ?? at.tagName);
    });
    if (reached.includes(name)) break;
    reached.push(name);
  }
  for (const name of ["Skip to the message box", "New chat", "Delete chat: What is 34 + 57?", "Settings", "Edit", "Thinking", "Try again", "Message"]) {
    assert.ok(reached.includes(name), `${name} is not among ${reached.join(", ")}`);
  }
  const settings = page.getByRole("button", { name: "Settings" });
  await settings.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  assert.ok(await settings.evaluate((element) => element === document.activeElement));
  await page.keyboard.press("Control+Shift+O");
  assert.ok(await box.evaluate((element) => element === document.activeElement), "a new chat starts in the box");
});

test("a screen reader hears when an answer begins and what it says", async () => {
  const { page } = await open();
  await chat.script({ deltas: [{ content: "Ninety-one." }] });
  await chat.ask("What is 34 + 57?");
  await page.getByRole("status").filter({ hasText: "Answer: Ninety-one." }).waitFor({ state: "attached" });
});

for (const colorScheme of ["light", "dark"]) {
  test(`axe finds nothing against WCAG 2.2 A and AA, ${colorScheme}`, async () => {
    const { page } = await open({ colorScheme });
    const call = { index: 0, id: "c1", type: "function", function: { name: "f", arguments: "{}" } };
    const text = "# A\n\ntext `code` [link](https://example.org)\n\n- [x] done\n\n1. one\n\n> quote\n\n|a|b|\n|-|-|\n|1|2|\n\n```py\nx = 1\n```";
    await chat.script({ deltas: [{ reasoning_content: "hm" }, { content: text }, { tool_calls: [call] }] });
    await chat.ask("Hello");
    const violations = async () => {
      await page.evaluate(installed("axe-core").source);
      const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
      const found = await page.evaluate((values) => window.axe.run(document, { runOnly: { type: "tag", values } }), tags);
      return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`);
    };
    assert.deepEqual(await violations(), []);
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByRole("dialog").waitFor();
    assert.deepEqual(await violations(), []);
  });
}

// ---- A server with a key ----

test("a server with keys asks for one, says when it is wrong and answers with the right one", async () => {
  const locked = await startServer("--api-key", "open-sesame");
  try {
    chat = await ChatPage.open(browser, locked.url, { settings: quick });
    const { page } = chat;
    await page.getByText("The server asks for a key.").waitFor();
    assert.equal(await page.getByText("Authorization").count(), 0);
    await page.getByLabel("API key").fill("wrong");
    await page.getByRole("button", { name: "Use" }).click();
    await page.getByText("The server does not accept this key.").waitFor();
    await page.getByLabel("API key").fill("open-sesame");
    await page.keyboard.press("Enter");
    await page.getByText(model).waitFor();
    assert.match(await (await chat.ask("What is 34 + 57?")).locator(".content").innerText(), /91/);
  } finally {
    await chat?.close();
    chat = undefined;
    await locked.stop();
  }
});
