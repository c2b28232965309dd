// One message of a chat: what the reader wrote, an answer with its thinking and tool calls, or a tool's result.
import { useState } from "preact/hooks";
import { MessageBox } from "./composer.jsx";
import { tokensPerSecond } from "./conversation.js";
import { CopyButton } from "./copy_button.jsx";
import { Markdown } from "./markdown.jsx";
import { memo } from "./memo.js";

export const Message = memo(
  function Message(props) {
    switch (props.message.role) {
      case "user":
        return <UserMessage {...props} />;
      case "assistant":
        return <Answer {...props} />;
      case "tool":
        return null; // shown with the call it belongs to
    }
  },
  // Of the other messages only results of tools matter, and they follow at once.
  (a, b) => a.message === b.message && a.streams === b.streams && a.index === b.index &&
    (a.message.role !== "assistant" || a.message.calls.length === 0 || a.messages === b.messages),
);

function UserMessage({ store, message, index }) {
  const [draft, setDraft] = useState(null); // text while it is edited
  const save = () => {
    if (draft.trim() === "") return;
    setDraft(null);
    store.edit(index, draft.trim());
  };
  return (
    <article class="user" aria-label="You">
      <h2 class="hidden">You</h2>
      {draft === null ? (
        <>
          <div class="bubble">{message.content}</div>
          <footer>
            <button type="button" class="quiet" onClick={() => setDraft(message.content)}>Edit</button>
            <CopyButton text={message.content} label="Copy message" />
          </footer>
        </>
      ) : (
        <form class="edit" onSubmit={(event) => (event.preventDefault(), save())}>
          <MessageBox value={draft} onInput={setDraft} onSubmit={save} onCancel={() => setDraft(null)} aria-label="Edit message" />
          <footer>
            <button type="button" class="quiet" onClick={() => setDraft(null)}>Cancel</button>
            <button type="submit" class="main" disabled={draft.trim() === ""}>Send</button>
          </footer>
        </form>
      )}
    </article>
  );
}

function Answer({ store, messages, message, index, streams }) {
  const { content, reasoning, calls, end, error } = message;
  const nothingYet = streams && !content && !reasoning && calls.length === 0;
  return (
    <article class="answer" aria-label="Answer" aria-busy={streams}>
      <h2 class="hidden">Answer</h2>
      {nothingYet && <p class="waiting">Reading the prompt…</p>}
      {reasoning && <Thinking message={message} streams={streams} />}
      {content && <div class="content"><Markdown text={content} /></div>}
      {calls.map((call) => (
        <ToolCall key={call.id} store={store} call={call} streams={streams} result={messages.find((other) => other.role === "tool" && other.call_id === call.id)} />
      ))}
      {end === "stop" && !content && calls.length === 0 && <p class="waiting">The model ended without an answer.</p>}
      {error && <p class="error" role="alert">{error}</p>}
      {!streams && (
        <footer>
          <button type="button" class="quiet" onClick={() => store.retry(index)}>Try again</button>
          {content && <CopyButton text={content} label="Copy answer" />}
          <span class="figures">{figuresOf(message)}</span>
        </footer>
      )}
    </article>
  );
}

function Thinking({ message: { reasoning, content, calls, timing }, streams }) {
  const thinks = streams && !content && calls.length === 0;
  return (
    <details class="thinking">
      <summary>{thinks ? "Thinking…" : `Thought for ${(timing?.reasoning_s ?? 0).toFixed(1)} s`}</summary>
      <div>{reasoning}</div>
    </details>
  );
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // not all of it is there yet, or the model wrote no JSON
  }
}

function ToolCall({ store, call, result, streams }) {
  const [text, setText] = useState("");
  const give = (event) => {
    event.preventDefault();
    store.giveResult(call.id, text);
  };
  return (
    <section class="call" aria-label={`Call of tool ${call.name}`}>
      <div class="code-head"><span>Tool call: <strong>{call.name}</strong></span></div>
      <pre tabindex="0"><code>{indented(call.arguments)}</code></pre>
      {result ? (
        <>
          <div class="code-head"><span>Result</span></div>
          <pre tabindex="0"><code>{indented(result.content)}</code></pre>
        </>
      ) : (
        !streams && (
          <form onSubmit={give}>
            <textarea rows="2" value={text} onInput={(event) => setText(event.currentTarget.value)} aria-label={`Result of ${call.name}`} placeholder="What the tool returns" />
            <button type="submit">Give result</button>
          </form>
        )
      )}
    </section>
  );
}

const kEnds = {
  stopped: "stopped",
  length: "ended at the length limit",
  insufficient_system_resource: "ended by the server",
  content_filter: "ended by a filter",
};

function figuresOf(message) {
  const { usage, timing, end } = message;
  const speed = tokensPerSecond(message);
  return [
    usage && `${usage.completion_tokens} tokens`,
    speed && `${speed.toFixed(1)} tokens/s`,
    usage && timing?.first_s !== undefined && `first after ${timing.first_s.toFixed(2)} s`,
    end === undefined ? "interrupted" : kEnds[end],
  ].filter(Boolean).join(" · ");
}
