// All state of the page and what the reader can do with it. The view draws `state` and calls the methods; every change
// makes a new `state`, so that the view can compare by reference.
import { addChunk, newAnswer, openCalls, requestBody } from "./conversation.js";
import { listModels, streamChat } from "./service.js";

function newChat() {
  return { id: crypto.getRandomValues(new Uint32Array(3)).join("-"), updated: Date.now(), messages: [] };
}

export class ChatStore {
  #storage;
  #listeners = new Set();
  #leaving = false; // the page closes: its requests break off, which is nobody's error
  #running = new Map(); // chat id → AbortController of its answer

  constructor(storage) {
    this.#storage = storage;
    const chats = storage.loadChats();
    const draft = newChat();
    this.state = {
      chats: [draft, ...chats],
      current: draft.id,
      settings: storage.loadSettings(),
      models: [],
      model: "",
      connection: "connecting", // or "ready", or the reason why not
      asksForKey: false, // the server wants a key, or another one
      running: new Set(), // ids of chats with an answer under way
      notice: "", // what a screen reader should say
    };
    storage.onOtherTab(() => this.#reload());
    storage.onLeave(() => {
      this.#leaving = true;
      for (const chat of this.state.chats) if (this.#running.has(chat.id)) storage.saveChat(chat);
    });
  }

  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get chat() {
    return this.state.chats.find((chat) => chat.id === this.state.current);
  }

  async connect() {
    try {
      const models = await listModels(this.state.settings.api_key);
      this.#set({ models, model: models[0], connection: "ready", asksForKey: false });
    } catch (error) {
      const asksForKey = error.status === 401;
      const asked = this.state.settings.api_key ? "The server does not accept this key." : "The server asks for a key.";
      const reason = error.status ? error.message : "The server cannot be reached.";
      this.#set({ connection: asksForKey ? asked : reason, asksForKey });
    }
  }

  // ---- chats ----

  openChat(id) {
    this.#set({ current: id, notice: "" });
  }

  newChat() {
    const empty = this.state.chats.find((chat) => chat.messages.length === 0);
    if (empty) return this.openChat(empty.id);
    const chat = newChat();
    this.#set({ chats: [chat, ...this.state.chats], current: chat.id, notice: "New chat" });
  }

  deleteChat(id) {
    this.stop(id);
    this.#storage.deleteChat(id);
    const chats = this.state.chats.filter((chat) => chat.id !== id);
    if (chats.length === 0) chats.push(newChat());
    const current = this.state.current === id ? chats[0].id : this.state.current;
    this.#set({ chats, current, notice: "Chat deleted" });
  }

  deleteAllChats() {
    for (const chat of this.state.chats) this.deleteChat(chat.id);
  }

  // ---- messages ----

  send(text) {
    const { id, messages } = this.chat;
    this.#setMessages(id, [...messages, { role: "user", content: text }]);
    return this.#answer(id);
  }

  // Replaces a message of the reader and forgets what followed it.
  edit(index, text) {
    const { id, messages } = this.chat;
    this.stop(id);
    this.#setMessages(id, [...messages.slice(0, index), { role: "user", content: text }]);
    return this.#answer(id);
  }

  // Answers again from where the answer at `index` began.
  retry(index) {
    const { id, messages } = this.chat;
    this.stop(id);
    this.#setMessages(id, messages.slice(0, index));
    return this.#answer(id);
  }

  // Gives a tool's result; the answer goes on once every call has one.
  giveResult(call_id, text) {
    const { id, messages } = this.chat;
    const next = [...messages, { role: "tool", call_id, content: text }];
    this.#setMessages(id, next);
    if (openCalls(next).length === 0) return this.#answer(id);
  }

  stop(id = this.state.current) {
    this.#running.get(id)?.abort();
  }

  // ---- settings ----

  changeSettings(changes) {
    const settings = { ...this.state.settings, ...changes };
    this.#storage.saveSettings(settings);
    this.#set({ settings });
    if ("api_key" in changes) this.connect();
  }

  chooseModel(model) {
    this.#set({ model });
  }

  // ---- private ----

  async #answer(id) {
    const abort = new AbortController();
    this.#running.set(id, abort);
    this.#set({ running: new Set(this.#running.keys()), notice: "Answering" });
    const before = this.#messagesOf(id);
    let answer = newAnswer();
    let frame = 0;
    const show = () => {
      frame = 0;
      if (this.#running.get(id) === abort) this.#setMessages(id, [...before, answer], "keep");
    };
    show();
    const started = performance.now();
    const elapsed_s = () => (performance.now() - started) / 1000;
    try {
      const body = requestBody(this.state.model, before, this.state.settings);
      await streamChat(body, this.state.settings.api_key, abort.signal, (chunk) => {
        answer = addChunk(answer, chunk, elapsed_s());
        frame ||= requestAnimationFrame(show);
      });
      answer = { ...answer, end: answer.end ?? "stop" };
    } catch (error) {
      answer = abort.signal.aborted ? { ...answer, end: "stopped" } : { ...answer, end: "error", error: error.message };
    }
    cancelAnimationFrame(frame);
    if (this.#leaving || this.#running.get(id) !== abort) return; // edited or deleted meanwhile: nobody waits for this answer
    this.#running.delete(id);
    this.#setMessages(id, [...before, answer]);
    const notice = answer.error ?? (answer.end === "stopped" ? "Stopped" : `Answer: ${answer.content || "see tool calls"}`);
    this.#set({ running: new Set(this.#running.keys()), notice });
  }

  #messagesOf(id) {
    return this.state.chats.find((chat) => chat.id === id)?.messages ?? [];
  }

  #setMessages(id, messages, storing = "store") {
    let changed = null;
    const chats = this.state.chats.map((chat) =>
      chat.id === id ? (changed = { ...chat, messages, updated: Date.now() }) : chat,
    );
    if (!changed) return;
    this.#set({ chats });
    if (storing === "store" && !this.#storage.saveChat(changed)) {
      this.#set({ notice: "This chat could not be kept: the browser's storage is full. Delete some chats." });
    }
  }

  // Another tab stored something: its chats are taken, those with an answer under way here stay as they are.
  #reload() {
    const own = this.state.chats.filter((chat) => chat.messages.length === 0 || this.#running.has(chat.id));
    const kept = new Set(own.map((chat) => chat.id));
    const chats = [...own, ...this.#storage.loadChats().filter((chat) => !kept.has(chat.id))];
    const current = chats.some((chat) => chat.id === this.state.current) ? this.state.current : chats[0]?.id;
    if (current) this.#set({ chats, current, settings: this.#storage.loadSettings() });
  }

  #set(changes) {
    this.state = { ...this.state, ...changes };
    for (const listener of this.#listeners) listener();
  }
}
