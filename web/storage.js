// Chats and settings in the browser's localStorage: one key a chat, so that two tabs do not overwrite each other's.
const kChat = "deepinfer.chat.";
const kSettings = "deepinfer.settings";

export const defaultSettings = {
  system: "",
  thinking: true,
  effort: "",
  temperature: "",
  top_p: "",
  top_k: "",
  min_p: "",
  max_tokens: "",
  seed: "",
  stop: "",
  tools: "",
  api_key: "",
  theme: "auto",
};

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // written by something else: as good as absent
  }
}

// Storage that forgets, for browsers that allow none.
function noStorage() {
  const items = new Map();
  return {
    get length() { return items.size; },
    key: (index) => [...items.keys()][index] ?? null,
    getItem: (key) => items.get(key) ?? null,
    setItem: (key, value) => void items.set(key, String(value)),
    removeItem: (key) => void items.delete(key),
  };
}

export function browserStorage(window) {
  let items;
  try {
    items = window.localStorage;
    items.getItem(kSettings);
  } catch {
    items = noStorage();
  }
  return {
    loadChats() {
      const chats = [];
      for (let index = 0; index < items.length; ++index) {
        const key = items.key(index);
        const chat = key.startsWith(kChat) ? parsed(items.getItem(key)) : null;
        if (chat && Array.isArray(chat.messages)) chats.push(chat);
      }
      return chats.sort((a, b) => b.updated - a.updated);
    },
    // False when the browser's quota is full.
    saveChat(chat) {
      try {
        items.setItem(kChat + chat.id, JSON.stringify(chat));
        return true;
      } catch {
        return false;
      }
    },
    deleteChat(id) {
      items.removeItem(kChat + id);
    },
    loadSettings() {
      return { ...defaultSettings, ...parsed(items.getItem(kSettings)) };
    },
    saveSettings(settings) {
      try {
        items.setItem(kSettings, JSON.stringify(settings));
      } catch {
        // they then last as long as the page
      }
    },
    onOtherTab(listener) {
      window.addEventListener("storage", listener);
    },
    onLeave(listener) {
      window.addEventListener("beforeunload", listener); // before the requests of the page break off
    },
  };
}
