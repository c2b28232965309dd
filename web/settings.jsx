// System prompt, thinking, sampling, tools, appearance. A change holds from the next answer on and is kept.
import { useEffect, useRef, useState } from "preact/hooks";
import { parseTools } from "./conversation.js";

const kNumbers = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: "any", hint: "0 to 2; 0 takes the likeliest token" },
  { name: "top_p", label: "Top-p", min: 0, max: 1, step: "any", hint: "0 to 1" },
  { name: "top_k", label: "Top-k", min: 0, step: 1, hint: "whole number" },
  { name: "min_p", label: "Min-p", min: 0, max: 1, step: "any", hint: "0 to 1" },
  { name: "max_tokens", label: "Most tokens", min: 1, step: 1, hint: "of an answer with its thinking" },
  { name: "seed", label: "Seed", min: 0, step: 1, hint: "the same seed, the same answer" },
];

export function SettingsDialog({ store, open, onClose }) {
  const dialog = useRef(null);
  useEffect(() => {
    if (open) dialog.current.showModal();
    else dialog.current.close();
  }, [open]);
  return (
    <dialog ref={dialog} onClose={onClose} aria-labelledby="settings-title">
      {open && <Settings store={store} onClose={onClose} />}
    </dialog>
  );
}

function Settings({ store, onClose }) {
  const { settings } = store.state;
  const text = (name) => ({
    id: `setting-${name}`,
    value: settings[name],
    onInput: ({ currentTarget: field }) => store.changeSettings({ [name]: field.value }),
  });
  return (
    <form method="dialog" onSubmit={onClose}>
      <div class="dialog-head">
        <h2 id="settings-title">Settings</h2>
        <button type="submit" class="quiet" formnovalidate aria-label="Close the settings">×</button>
      </div>
      <Field name="system" label="System prompt">
        <textarea rows="4" {...text("system")} />
      </Field>
      <div class="row">
        <label class="check">
          <input type="checkbox" checked={settings.thinking} onChange={({ currentTarget: box }) => store.changeSettings({ thinking: box.checked })} />
          Thinking
        </label>
        <Field name="effort" label="Effort">
          <select {...text("effort")} disabled={!settings.thinking}>
            <option value="">server's default</option>
            <option value="low">low</option>
            <option value="medium">medium</option>
            <option value="high">high</option>
            <option value="max">max</option>
          </select>
        </Field>
      </div>
      <fieldset>
        <legend>Sampling (empty: the server's default)</legend>
        {kNumbers.map((number) => <NumberField key={number.name} store={store} {...number} />)}
        <Field name="stop" label="Stop sequences" hint="one a line">
          <textarea rows="2" {...text("stop")} />
        </Field>
      </fieldset>
      <Tools store={store} />
      <div class="row">
        <Field name="theme" label="Appearance">
          <select {...text("theme")}>
            <option value="auto">as the system</option>
            <option value="light">light</option>
            <option value="dark">dark</option>
          </select>
        </Field>
        <Field name="api_key" label="API key" hint="if the server asks for one; kept in this browser">
          <input type="password" autocomplete="off" id="setting-api_key" value={settings.api_key} onChange={({ currentTarget: field }) => store.changeSettings({ api_key: field.value })} />
        </Field>
      </div>
      <p class="hint">Keys: Enter sends · Shift+Enter new line · Escape stops · Ctrl+Shift+O new chat · Ctrl+, settings</p>
      <div class="row end">
        <button type="button" class="danger" onClick={() => confirm("Delete all chats of this browser?") && store.deleteAllChats()}>Delete all chats</button>
        <button type="submit" class="main" formnovalidate>Done</button>
      </div>
    </form>
  );
}

function Field({ name, label, hint, problem, children }) {
  return (
    <div class="field">
      <label for={`setting-${name}`}>{label}</label>
      {children}
      {problem ? <span class="error" role="alert">{problem}</span> : hint && <span class="hint">{hint}</span>}
    </div>
  );
}

// What is out of range is shown as such and not kept.
function NumberField({ store, name, label, hint, ...range }) {
  const [problem, setProblem] = useState("");
  const onInput = ({ currentTarget: field }) => {
    setProblem(field.validationMessage);
    if (field.validity.valid) store.changeSettings({ [name]: field.value });
  };
  return (
    <Field name={name} label={label} hint={hint} problem={problem}>
      <input type="number" id={`setting-${name}`} defaultValue={store.state.settings[name]} onInput={onInput} aria-invalid={problem !== ""} {...range} />
    </Field>
  );
}

function Tools({ store }) {
  const [text, setText] = useState(store.state.settings.tools);
  const [problem, setProblem] = useState("");
  const onInput = ({ currentTarget: field }) => {
    setText(field.value);
    try {
      parseTools(field.value);
      setProblem("");
      store.changeSettings({ tools: field.value });
    } catch (error) {
      setProblem(`Not kept: ${error.message}`);
    }
  };
  return (
    <Field name="tools" label="Tools" hint="a JSON array of functions; you give the results of calls yourself" problem={problem}>
      <textarea id="setting-tools" class="mono" rows="3" spellcheck={false} value={text} onInput={onInput} aria-invalid={problem !== ""} placeholder='[{"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]' />
    </Field>
  );
}
