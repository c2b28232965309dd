// The whole view: list of chats, the open chat, the composer.
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import { Composer } from "./composer.jsx";
import { openCalls, titleOf } from "./conversation.js";
import { Message } from "./message.jsx";
import { SettingsDialog } from "./settings.jsx";
import { Sidebar } from "./sidebar.jsx";

export function App({ store }) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  useLayoutEffect(() => store.subscribe(redraw), [store]); // before anything can change: an effect would wait for a frame
  const [sidebarOpen, setSidebarOpen] = useState(false);
  const [settingsOpen, setSettingsOpen] = useState(false);
  const { state } = store;
  const chat = store.chat;
  const answering = state.running.has(chat.id);

  useTheme(state.settings.theme);
  useEffect(() => {
    document.title = chat.messages.length > 0 ? `${titleOf(chat)} · deepinfer` : "deepinfer";
  }, [chat]);
  useKeys({
    Escape: () => (sidebarOpen ? setSidebarOpen(false) : answering && store.stop()),
    "Control+Shift+O": () => store.newChat(),
    "Control+,": () => setSettingsOpen(true),
  });

  return (
    <div class="page">
      <a class="skip" href="#message-text">Skip to the message box</a>
      <Sidebar store={store} open={sidebarOpen} onClose={() => setSidebarOpen(false)} />
      <div class="chat">
        <header>
          <button type="button" class="quiet menu" aria-expanded={sidebarOpen} aria-controls="chats" aria-label="Chats" onClick={() => setSidebarOpen(!sidebarOpen)}>
            <span aria-hidden="true">☰</span>
          </button>
          <h1>{titleOf(chat)}</h1>
          <ModelChoice store={store} />
          <button type="button" class="quiet" onClick={() => setSettingsOpen(true)}>Settings</button>
        </header>
        <Log store={store} chat={chat} answering={answering} />
        <Composer key={chat.id} store={store} answering={answering} waitsForTools={openCalls(chat.messages).length > 0 && !answering} />
      </div>
      <SettingsDialog store={store} open={settingsOpen} onClose={() => setSettingsOpen(false)} />
      <div class="hidden" role="status">{state.notice}</div>
    </div>
  );
}

function ModelChoice({ store }) {
  const { models, model, connection, asksForKey } = store.state;
  if (connection !== "ready") {
    return (
      <span class="connection" role={connection === "connecting" ? undefined : "alert"}>
        {connection === "connecting" ? "connecting…" : connection}
        {asksForKey && <KeyForm store={store} />}
        {connection !== "connecting" && !asksForKey && <button type="button" class="quiet" onClick={() => store.connect()}>Try again</button>}
      </span>
    );
  }
  if (models.length === 1) return <span class="model">{model}</span>;
  return (
    <select aria-label="Model" value={model} onChange={(event) => store.chooseModel(event.currentTarget.value)}>
      {models.map((name) => <option value={name}>{name}</option>)}
    </select>
  );
}

// Kept with the settings, in this browser.
function KeyForm({ store }) {
  const onSubmit = (event) => {
    event.preventDefault();
    store.changeSettings({ api_key: new FormData(event.currentTarget).get("key") });
  };
  return (
    <form class="key" onSubmit={onSubmit}>
      <input type="password" name="key" aria-label="API key" placeholder="API key" autocomplete="off" required />
      <button type="submit" class="quiet">Use</button>
    </form>
  );
}

// The messages. It follows the end while the reader is there, and stays put once the reader scrolled up.
function Log({ store, chat, answering }) {
  const log = useRef(null);
  const follows = useRef(true);
  useLayoutEffect(() => {
    follows.current = true;
  }, [chat.id, chat.messages.length]);
  useLayoutEffect(() => {
    if (follows.current) log.current.scrollTop = log.current.scrollHeight;
  });
  const onScroll = ({ currentTarget: at }) => {
    follows.current = at.scrollHeight - at.scrollTop - at.clientHeight < 48;
  };
  const last = chat.messages.length - 1;
  return (
    <main ref={log} onScroll={onScroll} tabindex="-1" aria-label="Conversation" aria-busy={answering}>
      {chat.messages.length === 0 ? (
        <p class="empty">Write a message below. Chats are kept in this browser only.</p>
      ) : (
        chat.messages.map((message, index) => (
          <Message key={index} store={store} messages={chat.messages} message={message} index={index} streams={answering && index === last} />
        ))
      )}
    </main>
  );
}

function useTheme(theme) {
  useLayoutEffect(() => {
    document.documentElement.dataset.theme = theme;
  }, [theme]);
}

// `keys`: name as "Control+Shift+O" → what it does.
function useKeys(keys) {
  const latest = useRef(keys);
  latest.current = keys;
  useLayoutEffect(() => { // with the first frame: a key pressed before an effect would be lost
    const onKeyDown = (event) => {
      if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
      const name = [
        (event.ctrlKey || event.metaKey) && "Control",
        event.shiftKey && "Shift",
        event.key.length === 1 ? event.key.toUpperCase() : event.key,
      ].filter(Boolean).join("+");
      if (!latest.current[name]) return;
      if (name !== "Escape") event.preventDefault();
      latest.current[name]();
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);
}
