// What the page asks of the server: the model list and streamed Chat Completions.
import { EventReader } from "./server_events.js";

export class ServiceError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status; // of HTTP; undefined when the stream itself carried the error
  }
}

function headers(apiKey) {
  return { "Content-Type": "application/json", ...(apiKey && { Authorization: `Bearer ${apiKey}` }) };
}

async function refusal(response) {
  const body = await response.text();
  try {
    return new ServiceError(JSON.parse(body).error.message, response.status);
  } catch {
    return new ServiceError(`The server answered with status ${response.status}.`, response.status);
  }
}

export async function listModels(apiKey) {
  const response = await fetch("v1/models", { headers: headers(apiKey) });
  if (!response.ok) throw await refusal(response);
  return (await response.json()).data.map((model) => model.id);
}

// Calls `onChunk` with each chunk of the answer. Rejects with ServiceError, or AbortError once `signal` is aborted.
export async function streamChat(body, apiKey, signal, onChunk) {
  const response = await fetch("v1/chat/completions", {
    method: "POST",
    headers: headers(apiKey),
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await refusal(response);
  const events = new EventReader();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new ServiceError("The connection ended before the answer did.");
    for (const data of events.push(value)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ServiceError(chunk.error.message);
      onChunk(chunk);
    }
  }
}
