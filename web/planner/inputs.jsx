// Fields with units and sliders. A slider moves on a logarithmic scale where its range spans more than ten times.
import { useEffect, useState } from "preact/hooks";
import { fieldText, readField, writeValue } from "./numbers.js";

const kSteps = 200;

const isWide = ({ low, high }) => low > 0 && high / low > 10;
const toSlider = (value, input) => {
  const { low, high } = input;
  const share = isWide(input) ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.round(Math.min(Math.max(share, 0), 1) * kSteps);
};
const fromSlider = (step, input) => {
  const share = step / kSteps;
  const { low, high, scale } = input;
  const value = isWide(input) ? low * (high / low) ** share : low + (high - low) * share;
  return Number((value / scale).toPrecision(3)) * scale; // a number to read
};

function Field({ input, value, isChanged, onChange }) {
  const [typed, setTyped] = useState(null); // while it is no good number
  useEffect(() => setTyped(null), [value]);
  const id = `input-${input.id}`;
  const error = typed === null ? undefined : readField(typed, input).error;
  const type = ({ currentTarget: box }) => {
    const { value: read, error: wrong } = readField(box.value, input);
    setTyped(box.value);
    if (!wrong) onChange(read);
  };
  return (
    <div class={isChanged ? "field changed" : "field"}>
      <label for={id}>{input.label}</label>
      <span class="entry">
        <input id={id} inputmode="decimal" autocomplete="off" value={typed ?? fieldText(value, input)} onInput={type} onBlur={() => setTyped(null)}
               aria-invalid={error ? "true" : undefined} aria-describedby={error ? `${id}-error` : `${id}-unit`} />
        <span class="unit" id={`${id}-unit`}>{input.unit}</span>
        {isChanged && <button type="button" class="quiet" aria-label={`Reset ${input.label}`} title="Back to the default" onClick={() => onChange(undefined)}>↺</button>}
      </span>
      {input.high > input.low && (
        <input type="range" min="0" max={kSteps} value={toSlider(value, input)} aria-label={`${input.label}, slider`} aria-valuetext={writeValue(value, input)}
               onInput={({ currentTarget: slider }) => onChange(fromSlider(Number(slider.value), input))} />
      )}
      {error && <span class="error" role="alert" id={`${id}-error`}>{error}</span>}
      <span class="source">{input.source}; confidence {input.confidence}</span>
    </div>
  );
}

// `values` are those in force, `changes` those that the reader made. Groups in `open` start unfolded.
export function Inputs({ model, values, changes, open, onChange }) {
  const groups = [...new Set(model.inputs.map((input) => input.group))];
  return groups.map((group) => (
    <details class="group" key={group} open={open.includes(group)}>
      <summary>{group}</summary>
      {model.inputs.map((input, i) => input.group === group && (
        <Field key={input.id} input={input} value={values[i]} isChanged={changes[input.id] !== undefined} onChange={(value) => onChange(input.id, value)} />
      ))}
    </details>
  ));
}
