// The @anthropic-ai/sdk package.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { installed, model, startServer } from "../e2e/served.mjs";
import { startScriptedServer, weather } from "./scripted.mjs";

const Anthropic = installed("@anthropic-ai/sdk").Anthropic;
const tools = [{ name: "get_weather", description: "Weather of a city", input_schema: weather }];
const text_of = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");
let servers, mini, scripted;

before(async () => {
  servers = await Promise.all([startServer(), startScriptedServer()]);
  [mini, scripted] = servers.map(({ url }) => new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 }));
});
after(() => Promise.all((servers ?? []).map((server) => server.stop())));

test("anthropic: a message whole and streamed", async () => {
  const ask = { model, max_tokens: 200, temperature: 0, messages: [{ role: "user", content: "What is 34 + 57?" }] };
  const whole = await mini.messages.create(ask);
  assert.match(text_of(whole), /91/);
  const streamed = await mini.messages.stream(ask).finalMessage();
  assert.equal(text_of(streamed), text_of(whole));
  assert.equal((await mini.messages.countTokens({ model, messages: ask.messages })).input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
});

test("anthropic: a streamed tool call, its result, the answer", async () => {
  const messages = [{ role: "user", content: "Weather in Paris?" }];
  const first = await scripted.messages.stream({ model, max_tokens: 200, messages, tools }).finalMessage();
  assert.equal(first.stop_reason, "tool_use");
  const use = first.content.find((block) => block.type === "tool_use");
  assert.deepEqual(use.input, { city: "Paris" });
  messages.push({ role: "assistant", content: first.content });
  messages.push({ role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "sunny, 21 C" }] });
  assert.equal(text_of(await scripted.messages.create({ model, max_tokens: 200, messages, tools })), "It is sunny in Paris.");
});

test("anthropic: errors have the classes of the SDK", async () => {
  const messages = [{ role: "user", content: "hi" }];
  await assert.rejects(mini.messages.create({ model: "no-such-model", max_tokens: 8, messages }), Anthropic.NotFoundError);
  await assert.rejects(mini.messages.create({ model, max_tokens: 0, messages }), Anthropic.BadRequestError);
});
