// The openai package of npm.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { installed, model, startServer } from "../e2e/served.mjs";
import { startScriptedServer, weather } from "./scripted.mjs";

const OpenAI = installed("openai").OpenAI;
const sum = "What is 34 + 57?";
let servers, mini, scripted;

before(async () => {
  servers = await Promise.all([startServer(), startScriptedServer()]);
  [mini, scripted] = servers.map(({ url }) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 }));
});
after(() => Promise.all((servers ?? []).map((server) => server.stop())));

test("openai: chat whole and streamed", async () => {
  const ask = { model, messages: [{ role: "user", content: sum }], temperature: 0, max_tokens: 80 };
  const whole = await mini.chat.completions.create(ask);
  assert.match(whole.choices[0].message.content, /91/);
  const streamed = await mini.chat.completions.stream(ask).finalChatCompletion();
  assert.equal(streamed.choices[0].message.content, whole.choices[0].message.content);
});

test("openai: runTools calls a tool and reads its result", async () => {
  const asked = [];
  const get_weather = ({ city }) => (asked.push(city), "sunny, 21 C");
  const tool = { type: "function", function: { name: "get_weather", function: get_weather, parse: JSON.parse, parameters: weather } };
  for (const stream of [false, true]) {
    const runner = scripted.chat.completions.runTools({ model, messages: [{ role: "user", content: "Weather in Paris?" }], tools: [tool], stream });
    assert.equal(await runner.finalContent(), "It is sunny in Paris.");
  }
  assert.deepEqual(asked, ["Paris", "Paris"]);
});

test("openai: responses whole, streamed and continued after a call", async () => {
  const whole = await mini.responses.create({ model, input: sum, temperature: 0, max_output_tokens: 80 });
  assert.match(whole.output_text, /91/);
  const tools = [{ type: "function", name: "get_weather", parameters: weather, strict: false }];
  const first = await scripted.responses.stream({ model, input: "Weather in Paris?", tools }).finalResponse();
  const call = first.output.find((item) => item.type === "function_call");
  assert.deepEqual(JSON.parse(call.arguments), { city: "Paris" });
  const input = [{ type: "function_call_output", call_id: call.call_id, output: "sunny, 21 C" }];
  const second = await scripted.responses.create({ model, input, tools, previous_response_id: first.id });
  assert.equal(second.output_text, "It is sunny in Paris.");
});

test("openai: a stream that is aborted frees the server", async () => {
  const stream = await mini.chat.completions.create({ model, messages: [{ role: "user", content: "Count." }], temperature: 2, max_tokens: 4000, stream: true });
  for await (const _ of stream) break;
  const health = async () => (await fetch(`${servers[0].url}/health`)).json();
  for (const deadline = Date.now() + 20_000; (await health()).running > 0; ) assert.ok(Date.now() < deadline, "the engine still works");
});

test("openai: errors have the classes of the SDK", async () => {
  const messages = [{ role: "user", content: "hi" }];
  await assert.rejects(mini.chat.completions.create({ model: "no-such-model", messages }), OpenAI.NotFoundError);
  await assert.rejects(mini.chat.completions.create({ model, messages, temperature: 9 }), OpenAI.BadRequestError);
});
