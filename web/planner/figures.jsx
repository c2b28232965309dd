// Figures with "why": formula, formula with numbers, source, findings.
import { agrees, entryOf, fill, formulasOf, textOf } from "./plan.js";
import { writeValue } from "./numbers.js";

function Why({ model, values, figure }) {
  const { names, numbers, parts } = formulasOf(model, values, figure);
  return (
    <div class="why">
      <p class="formula">= {names}</p>
      <p class="formula">= {numbers}</p>
      <p class="formula">= {textOf(model, values, figure.id)}</p>
      <dl>
        {parts.map((id) => {
          const part = entryOf(model, id);
          return [<dt>{id}</dt>, <dd>{textOf(model, values, id)}: {part.label} ({part.formula ? "computed" : `${part.source}; confidence ${part.confidence}`})</dd>];
        })}
      </dl>
      {figure.claim && <p>The source says {figure.claim.text}.</p>}
      <p>{figure.source && `${figure.source}; `}confidence {figure.confidence}</p>
      {model.findings.filter(({ letter }) => figure.findings.includes(letter)).map(({ letter, text }) => (
        <p class="finding" key={letter}><strong>({letter})</strong> {fill(model, values, text)}</p>
      ))}
    </div>
  );
}

function Figure({ model, values, figure }) {
  const value = values[model.inputs.length + model.figures.indexOf(figure)];
  const verdict = figure.claim && (agrees(figure, value)
    ? <span class="agrees">agrees</span>
    : <span class="differs">{Math.abs((value / figure.scale / figure.claim.value - 1) * 100).toFixed(1)} % {value / figure.scale > figure.claim.value ? "high" : "low"}</span>);
  return (
    <details class="figure" id={`figure-${figure.id}`}>
      <summary>
        {figure.number > 0 && <span class="number">{figure.number}</span>}
        <span class="label">{figure.label}</span>
        <span class="value">{writeValue(value, figure)}</span>
        {figure.claim && <span class="claim">source: {figure.claim.text}, {verdict}</span>}
        {figure.findings !== "" && <span class="letters" aria-label={`findings ${[...figure.findings].join(", ")}`}>{[...figure.findings].map((letter) => `(${letter})`).join(" ")}</span>}
      </summary>
      <Why model={model} values={values} figure={figure} />
    </details>
  );
}

export function FigureList({ model, values, figures }) {
  return <div class="figures">{figures.map((figure) => <Figure key={figure.id} model={model} values={values} figure={figure} />)}</div>;
}

export function FigureGroups({ model, values }) {
  const groups = [...new Set(model.figures.map((figure) => figure.group))];
  return groups.map((group) => (
    <section key={group} aria-label={group}>
      <h3>{group}</h3>
      <FigureList model={model} values={values} figures={model.figures.filter((figure) => figure.group === group)} />
    </section>
  ));
}

export function Findings({ model, values }) {
  return (
    <section aria-label="Findings">
      <h3>Findings</h3>
      <dl class="findings">
        {model.findings.map(({ letter, text }) => [<dt>({letter})</dt>, <dd>{fill(model, values, text)}</dd>])}
      </dl>
    </section>
  );
}
