// The messages of a chat and what is sent for them. Pure functions; a message is never changed, only replaced.
//
// user       {role, content}
// assistant  {role, content, reasoning, calls: [{id, name, arguments}], end, usage, timing, error}
//            `end` is the finish reason, "stopped" when the reader stopped it, or "error"; absent while it streams
// tool       {role, call_id, content}

export function titleOf(chat) {
  const first = chat.messages.find((message) => message.role === "user");
  if (!first) return "New chat";
  const line = first.content.trim().split("\n", 1)[0];
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}

export function newAnswer() {
  return { role: "assistant", content: "", reasoning: "", calls: [] };
}

// The answer with one more chunk of the stream; `elapsed_s` since the request was sent.
export function addChunk(answer, chunk, elapsed_s) {
  const next = { ...answer, calls: [...answer.calls], timing: { ...answer.timing, total_s: elapsed_s } };
  if (chunk.usage) next.usage = chunk.usage;
  const choice = chunk.choices[0];
  if (!choice) return next;
  const { content, reasoning_content, tool_calls } = choice.delta ?? {};
  if (content || reasoning_content || tool_calls) next.timing.first_s ??= elapsed_s;
  if (reasoning_content) {
    next.reasoning += reasoning_content;
    next.timing.reasoning_s = elapsed_s;
  }
  if (content) next.content += content;
  for (const call of tool_calls ?? []) {
    const { id = "", name = "", arguments: text = "" } = next.calls[call.index] ?? {};
    next.calls[call.index] = {
      id: call.id ?? id,
      name: call.function?.name ?? name,
      arguments: text + (call.function?.arguments ?? ""),
    };
  }
  if (choice.finish_reason) next.end = choice.finish_reason;
  return next;
}

// Calls of the last answer that no result has been given for.
export function openCalls(messages) {
  const last = messages.findLastIndex((message) => message.role === "assistant");
  if (last < 0) return [];
  const answered = new Set(messages.slice(last + 1).map((message) => message.call_id));
  return messages[last].calls.filter((call) => !answered.has(call.id));
}

const kMeasurable_s = 0.05; // a shorter span says more about the browser than about the model

// Tokens a second after the first one; null where it can't be told.
export function tokensPerSecond({ usage, timing }) {
  const tokens = (usage?.completion_tokens ?? 0) - 1;
  const seconds = (timing?.total_s ?? 0) - (timing?.first_s ?? 0);
  return tokens > 0 && seconds >= kMeasurable_s ? tokens / seconds : null;
}

function messageToSend(message) {
  switch (message.role) {
    case "user":
      return { role: "user", content: message.content };
    case "tool":
      return { role: "tool", tool_call_id: message.call_id, content: message.content };
    case "assistant":
      return {
        role: "assistant",
        content: message.content,
        ...(message.reasoning && { reasoning_content: message.reasoning }),
        ...(message.calls.length > 0 && {
          tool_calls: message.calls.map((call) => ({
            id: call.id,
            type: "function",
            function: { name: call.name, arguments: call.arguments },
          })),
        }),
      };
  }
}

// The settings hold text as typed; what is empty is not sent, so that the server's own default holds.
function samplingFields(settings) {
  const fields = {};
  for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"]) {
    if (settings[name] !== "") fields[name] = Number(settings[name]);
  }
  const stop = settings.stop.split("\n").filter((line) => line !== "");
  if (stop.length > 0) fields.stop = stop;
  return fields;
}

// Tools as typed: a JSON array of functions, each with or without the envelope of the API. Throws on anything else.
export function parseTools(text) {
  if (text.trim() === "") return [];
  const tools = JSON.parse(text);
  if (!Array.isArray(tools)) throw new Error("expected an array of tools");
  return tools.map((tool, index) => {
    const wrapped = tool?.type === "function" ? tool : { type: "function", function: tool };
    if (typeof wrapped.function?.name !== "string") throw new Error(`tool ${index + 1} has no name`);
    return wrapped;
  });
}

// The body of a Chat Completions request.
export function requestBody(model, messages, settings) {
  const tools = parseTools(settings.tools);
  const system = settings.system.trim();
  return {
    model,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages.map(messageToSend)],
    thinking: { type: settings.thinking ? "enabled" : "disabled" },
    ...(settings.thinking && settings.effort && { reasoning_effort: settings.effort }),
    ...samplingFields(settings),
    ...(tools.length > 0 && { tools }),
  };
}
