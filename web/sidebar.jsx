// The chats kept in this browser. Beside the open chat on a wide screen, a drawer over it on a narrow one.
import { titleOf } from "./conversation.js";

export function Sidebar({ store, open, onClose }) {
  const { chats, current, running } = store.state;
  const kept = chats.filter((chat) => chat.messages.length > 0).sort((a, b) => b.updated - a.updated);
  const go = (action) => () => {
    action();
    onClose();
  };
  return (
    <>
      {open && <div class="shade" onClick={onClose} />}
      <nav id="chats" class={open ? "open" : undefined} aria-label="Chats">
        <div class="nav-head">
          <strong>deepinfer</strong>
          <button type="button" class="quiet close" aria-label="Close the list of chats" onClick={onClose}>×</button>
        </div>
        <button type="button" class="new" onClick={go(() => store.newChat())}>New chat</button>
        <ul>
          {kept.map((chat) => (
            <li key={chat.id} class={chat.id === current ? "current" : undefined}>
              <button type="button" class="title" aria-current={chat.id === current ? "page" : undefined} onClick={go(() => store.openChat(chat.id))}>
                {titleOf(chat)}
                {running.has(chat.id) && <span class="working" aria-label="answering"> …</span>}
              </button>
              <button type="button" class="quiet" aria-label={`Delete chat: ${titleOf(chat)}`} onClick={() => confirm("Delete this chat?") && store.deleteChat(chat.id)}>×</button>
            </li>
          ))}
        </ul>
      </nav>
    </>
  );
}
