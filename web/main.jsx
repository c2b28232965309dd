// Starts the page: the stored chats and settings, then the view.
import { render } from "preact";
import { App } from "./app.jsx";
import { ChatStore } from "./chat_store.js";
import { browserStorage } from "./storage.js";

const store = new ChatStore(browserStorage(window));
store.connect();
render(<App store={store} />, document.getElementById("app"));
