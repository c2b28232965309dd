// The `ai` package, through each of the three protocols.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { installed, model, startServer } from "../e2e/served.mjs";
import { startScriptedServer, weather } from "./scripted.mjs";

const load = (name) => import(installed.resolve(name));
const { generateText, jsonSchema, stepCountIs, streamText, tool } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createAnthropic } = await load("@ai-sdk/anthropic");

const providers = {
  "openai-compatible": (url) => createOpenAICompatible({ name: "deepinfer", baseURL: `${url}/v1`, apiKey: "none", includeUsage: true })(model),
  "openai, Chat Completions": (url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" }).chat(model),
  "openai, Responses": (url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" }).responses(model),
  "anthropic": (url) => createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" })(model),
};
let servers, mini, scripted;

before(async () => {
  servers = await Promise.all([startServer(), startScriptedServer()]);
  [mini, scripted] = servers.map(({ url }) => url);
});
after(() => Promise.all((servers ?? []).map((server) => server.stop())));

function tools(asked) {
  const execute = async ({ city }) => (asked.push(city), "sunny, 21 C");
  return { get_weather: tool({ description: "Weather of a city", inputSchema: jsonSchema(weather), execute }) };
}

for (const [name, provider] of Object.entries(providers)) {
  test(`ai with ${name}: a text whole and streamed`, async () => {
    const ask = { model: provider(mini), prompt: "What is 34 + 57?", temperature: 0, maxOutputTokens: 80, maxRetries: 0 };
    const whole = await generateText(ask);
    assert.match(whole.text, /91/);
    assert.ok(whole.usage.outputTokens > 0);
    const stream = streamText(ask);
    assert.equal(await stream.text, whole.text);
    assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
  });

  test(`ai with ${name}: a tool is run between two steps`, async () => {
    const asked = [];
    const ask = { model: provider(scripted), prompt: "Weather in Paris?", tools: tools(asked), stopWhen: stepCountIs(3), maxRetries: 0 };
    const whole = await generateText(ask);
    assert.equal(whole.text, "It is sunny in Paris.");
    assert.equal(whole.steps.length, 2);
    assert.equal(await streamText(ask).text, "It is sunny in Paris.");
    assert.deepEqual(asked, ["Paris", "Paris"]);
  });
}
