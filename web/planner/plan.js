// From what a reader chose to the values of the models. Pure functions over the modules made from src/planner/.
import { hardware, models, serverInputs } from "planner_models";
import { fieldText, writeValue } from "./numbers.js";

export { hardware, models };

const kMostAnswers = 4096;

export const placeOf = (model, id) => {
  const input = model.inputs.findIndex((one) => one.id === id);
  return input >= 0 ? input : model.inputs.length + model.figures.findIndex((one) => one.id === id);
};
export const entryOf = (model, id) => model.inputs.find((one) => one.id === id) ?? model.figures.find((one) => one.id === id);
export const valueOf = (model, values, id) => values[placeOf(model, id)];
export const textOf = (model, values, id) => writeValue(valueOf(model, values, id), entryOf(model, id));

// `changes`: {id: base value} of inputs.
export function computeModel(model, changes = {}) {
  return model.compute(model.inputs.map((input) => changes[input.id] ?? input.value));
}

export const fill = (model, values, text) => text.replace(/\{(\w+)\}/g, (_, id) => textOf(model, values, id));
export const notesOf = (model, values) => model.notes.filter((note) => note.holds(values)).map((note) => fill(model, values, note.text));

// The largest number of answers at a time at which each keeps the speed; 0 when one alone has less.
export function mostAnswers(serverChanges, userSpeed) {
  const speed = (answers) => valueOf(models.server, computeModel(models.server, { ...serverChanges, answers }), "user_speed");
  let fits = 0;
  let fails = kMostAnswers + 1;
  while (fails - fits > 1) {
    const middle = Math.floor((fits + fails) / 2);
    if (speed(middle) >= userSpeed) fits = middle;
    else fails = middle;
  }
  return fits;
}

// A CPU server as hardware; `problem` says why it can't serve.
export function cpuServer(serverChanges, userSpeed) {
  const model = models.server;
  const answers = mostAnswers(serverChanges, userSpeed);
  const values = computeModel(model, { ...serverChanges, answers: Math.max(1, answers) });
  const inputs = { prefill_unit: 1, decode_unit: 1 };
  for (const [input, figure] of serverInputs) inputs[input] = valueOf(model, values, figure);
  let problem;
  if (valueOf(model, values, "memory_left") < 0) {
    problem = fill(model, values, "The weights take {memory_needed}, and a server has {memory}.");
  } else if (answers === 0) {
    problem = fill(model, values, "One answer alone reaches {user_speed} on this server, less than what is wanted.");
  }
  return { name: "cpu", label: `CPU server, ${answers} answers at a time`, card: "server", inputs, notes: notesOf(model, values), problem,
           source: "the floor of docs/performance.md with the shares reached there", confidence: "medium" };
}

// state: {hardware, changes: {model name: {id: base value}}}
export function planDeployment({ hardware: name, changes }) {
  const model = models.deployment;
  const traffic = changes.deployment ?? {};
  const speed = traffic.user_speed ?? model.inputs.find((input) => input.id === "user_speed").value;
  const machine = name === "cpu" ? cpuServer(changes.server ?? {}, speed) : (hardware.find((one) => one.name === name) ?? hardware[0]);
  const given = { ...machine.inputs, ...traffic };
  const values = computeModel(model, given);
  return { model, values, hardware: machine, given, notes: [...machine.notes, ...notesOf(model, values)] };
}

export function agrees(figure, base) {
  const { value, step } = figure.claim;
  const over = base / figure.scale - value;
  const slack = 1e-9 * Math.abs(value);
  return over >= -step / 2 - slack && over < Math.max(step, slack);
}

// What each input does to a figure, the strongest first.
export function sensitivity(model, values, id) {
  const place = placeOf(model, id);
  const base = values.slice(0, model.inputs.length);
  const effects = [];
  for (const [i, input] of model.inputs.entries()) {
    const at = (value) => {
      const changed = base.slice();
      changed[i] = input.bound === "fraction" ? Math.min(Math.max(value, 0), 1) : value;
      return model.compute(changed)[place];
    };
    const effect = { input, down: at(base[i] * 0.9), up: at(base[i] * 1.1), atLow: at(input.low), atHigh: at(input.high) };
    if (effect.down !== effect.up || effect.atLow !== effect.atHigh) effects.push(effect);
  }
  const size = ({ up, down }) => (Number.isFinite(Math.abs(up - down)) ? Math.abs(up - down) : 1e300);
  return effects.sort((a, b) => size(b) - size(a));
}

// The formula of a figure with names, and with numbers.
export function formulasOf(model, values, figure) {
  return {
    names: figure.formula.replace(/\{(\w+)\}/g, "$1"),
    numbers: figure.formula.replace(/\{(\w+)\}/g, (_, id) => textOf(model, values, id)),
    parts: [...new Set([...figure.formula.matchAll(/\{(\w+)\}/g)].map(([, id]) => id))],
  };
}

const cell = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const entries = (model) => [...model.inputs.map((one) => [one, "input"]), ...model.figures.map((one) => [one, "figure"])];

// As deepinfer plan --csv and --json write them; --inputs reads both.
export function toCsv(model, values) {
  const lines = entries(model).map(([one, kind], i) => [one.id, String(values[i] / one.scale), cell(one.unit), kind, cell(one.label)].join(","));
  return ["name,value,unit,kind,label", ...lines, ""].join("\n");
}

export function toJson(model, values) {
  const entry = ([one], i) => ({ name: one.id, label: one.label, group: one.group, value: values[i] / one.scale, unit: one.unit, text: writeValue(values[i], one), confidence: one.confidence });
  const all = entries(model).map(entry);
  return JSON.stringify({ model: model.name, inputs: all.slice(0, model.inputs.length), figures: all.slice(model.inputs.length) }, null, 1);
}

export { fieldText };
