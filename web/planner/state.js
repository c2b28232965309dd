// What a reader chose, kept in the part of the address behind '#': a link shares it, also of a file. Only what differs from
// the defaults is there: "#tab=deployment&hardware=cpu&deployment.requests=80".
import { hardware, models } from "./plan.js";
import { fieldText, readField } from "./numbers.js";

export const tabs = [
  { id: "deployment", label: "Your deployment" },
  { id: "published", label: "The published service" },
  { id: "server", label: "One CPU server" },
];

export const fresh = () => ({ tab: "deployment", hardware: "published", changes: {} });

export function parseState(hash) {
  const state = fresh();
  for (const [key, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (key === "tab" && tabs.some((tab) => tab.id === text)) state.tab = text;
    if (key === "hardware" && (text === "cpu" || hardware.some((one) => one.name === text))) state.hardware = text;
    const [name, id] = key.split(".");
    const input = Object.hasOwn(models, name) ? models[name].inputs.find((one) => one.id === id) : undefined;
    const { value } = input ? readField(text, input) : {};
    if (value !== undefined) state.changes = { ...state.changes, [name]: { ...state.changes[name], [id]: value } };
  }
  return state;
}

export function writeState(state) {
  const parts = new URLSearchParams();
  if (state.tab !== "deployment") parts.set("tab", state.tab);
  if (state.hardware !== "published") parts.set("hardware", state.hardware);
  for (const [name, changes] of Object.entries(state.changes)) {
    for (const [id, value] of Object.entries(changes)) {
      parts.set(`${name}.${id}`, fieldText(value, models[name].inputs.find((one) => one.id === id)));
    }
  }
  return parts.size === 0 ? "" : `#${parts}`;
}
