// The box a message is written in. Enter sends, Shift+Enter starts a line, Escape stops an answer.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

// A text box as tall as its text, that hands it over on Enter.
export function MessageBox({ value, onInput, onSubmit, onCancel, ...rest }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    box.current.style.height = "auto";
    box.current.style.height = `${box.current.scrollHeight + 2}px`;
  }, [value]);
  useLayoutEffect(() => {
    box.current.focus({ preventScroll: true });
    box.current.setSelectionRange(value.length, value.length);
  }, []);
  const onKeyDown = (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      onSubmit();
    } else if (event.key === "Escape" && onCancel) {
      event.preventDefault();
      onCancel();
    }
  };
  return <textarea ref={box} rows="1" value={value} onInput={(event) => onInput(event.currentTarget.value)} onKeyDown={onKeyDown} {...rest} />;
}

export function Composer({ store, answering, waitsForTools }) {
  const [text, setText] = useState("");
  const ready = store.state.connection === "ready";
  const send = () => {
    if (answering || !ready || text.trim() === "") return;
    setText("");
    store.send(text.trim());
  };
  return (
    <form class="composer" aria-label="Write a message" onSubmit={(event) => (event.preventDefault(), send())}>
      <MessageBox
        id="message-text"
        value={text}
        onInput={setText}
        onSubmit={send}
        aria-label="Message"
        placeholder={waitsForTools ? "Give the tool's result above, or write a message" : "Write a message"}
      />
      {answering ? (
        <button type="button" class="main" onClick={() => store.stop()}>Stop</button>
      ) : (
        <button type="submit" class="main" disabled={!ready || text.trim() === ""}>Send</button>
      )}
    </form>
  );
}
