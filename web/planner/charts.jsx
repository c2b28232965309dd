// Charts, each with a table of its numbers. Chartist draws; a screen reader gets the table.
import { BarChart, FixedScaleAxis, LineChart } from "chartist";
import { useEffect, useRef, useState } from "preact/hooks";
import { computeModel, entryOf, sensitivity, valueOf } from "./plan.js";
import { writeValue } from "./numbers.js";

const short = (text) => text.replace(/(\.\d)\d+/, "$1");

function Chart({ title, columns, rows, draw, height, note }) {
  const box = useRef(null);
  useEffect(() => {
    const chart = draw(box.current);
    return () => chart.detach();
  });
  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <div aria-hidden="true" ref={box} style={{ height }} />
      {note && <p class="note">{note}</p>}
      <details>
        <summary>{title}: table</summary>
        <table>
          <thead><tr>{columns.map((column) => <th scope="col" key={column}>{column}</th>)}</tr></thead>
          <tbody>{rows.map((row) => <tr key={row[0]}><th scope="row">{row[0]}</th>{row.slice(1).map((text, i) => <td key={i}>{text}</td>)}</tr>)}</tbody>
        </table>
      </details>
    </figure>
  );
}

// bars: [{label, value, entry}], drawn from the left.
export function Bars({ title, bars, unit, column, note, mark }) {
  const scale = bars[0].entry.scale;
  const top = Math.max(...bars.map(({ value }) => value / scale), mark ?? 0);
  const draw = (element) => {
    const upwards = [...bars].reverse();
    return new BarChart(element, { labels: upwards.map(({ label }) => label), series: [upwards.map(({ value }) => value / scale)] },
      { horizontalBars: true, high: top, low: 0, axisY: { offset: 150 }, axisX: { labelInterpolationFnc: (value) => short(writeValue(value, { unit: "", scale: 1 })), scaleMinSpace: 60 }, chartPadding: { right: 30 } })
      .on("draw", (context) => {
        if (context.type !== "bar") return;
        context.element.attr({ style: "stroke-width: 18px" });
        if (mark !== undefined && upwards[context.index].value / scale > mark) context.element.addClass("over");
      });
  };
  return <Chart title={`${title} (${unit})`} columns={[column, unit]} rows={bars.map(({ label, value, entry }) => [label, writeValue(value, entry)])} draw={draw} height={`${bars.length * 32 + 50}px`} note={note} />;
}

// lines: [{label, values}] over `xs`; values in the unit of `entry`. What is no number above 0 leaves a gap.
function Lines({ title, xs, xLabel, lines, entry, note }) {
  const shown = (value) => (Number.isFinite(value) && value >= 0 ? value / entry.scale : null);
  const draw = (element) => new LineChart(element, { series: lines.map(({ values }) => xs.map((x, i) => ({ x, y: shown(values[i]) }))) },
    { fullWidth: true, showPoint: false, low: 0, axisX: { type: FixedScaleAxis, divisor: 6, low: 0, high: xs.at(-1), labelInterpolationFnc: (value) => `${Math.round(value)}` },
      axisY: { offset: 60, labelInterpolationFnc: (value) => short(writeValue(value, { unit: "", scale: 1 })) }, chartPadding: { right: 25 } });
  const every = xs.filter((_, i) => i % 4 === 0 || i === xs.length - 1);
  return (
    <div>
      <Chart title={`${title} (${entry.unit} over ${xLabel})`} columns={[xLabel, ...lines.map(({ label }) => label)]} draw={draw} height="220px" note={note}
             rows={every.map((x) => [String(x), ...lines.map(({ values }) => (shown(values[xs.indexOf(x)]) === null ? "never" : writeValue(values[xs.indexOf(x)], entry)))])} />
      {lines.length > 1 && <ul class="legend" aria-hidden="true">{lines.map(({ label }, i) => <li key={label} class={`line-${i}`}>{label}</li>)}</ul>}
    </div>
  );
}

const kDay = 86400;
const days = Array.from({ length: 30 }, (_, i) => i + 1);

export function CostParts({ model, values }) {
  const parts = ["prefill_cost", "decode_cost", "store_cost"].map((id) => ({ label: entryOf(model, id).label, value: valueOf(model, values, id), entry: entryOf(model, id) }));
  return <Bars title="Cost by part" unit="$ per hour" column="Part" bars={parts} />;
}

export function CapacityOverDays({ model, given }) {
  const at = (day) => computeModel(model, { ...given, chat_days: day * kDay, agent_days: day * kDay });
  const over = days.map(at);
  return <Lines title="Capacity over days of retention" xs={days} xLabel="days" entry={entryOf(model, "store_size")}
                lines={[{ label: "SSD", values: over.map((values) => valueOf(model, values, "store_size")) }]} />;
}

export function PaybackOverDays({ model, given }) {
  const over = days.map((day) => computeModel(model, { ...given, extra_days: day * kDay }));
  return <Lines title="Payback of longer retention" xs={days} xLabel="more days" entry={entryOf(model, "payback_own")}
                lines={[{ label: "your own use", values: over.map((values) => valueOf(model, values, "payback_own")) },
                        { label: "sold at the price list", values: over.map((values) => valueOf(model, values, "payback_sold")) }]}
                note="For the same gain in hit rate. Where a line is missing it never pays." />;
}

export function Tornado({ model, values, figures }) {
  const [id, setId] = useState(figures[0]);
  const entry = entryOf(model, id);
  const base = valueOf(model, values, id);
  const effects = sensitivity(model, values, id).filter(({ up, down }) => Number.isFinite(up - down)).slice(0, 10);
  const upwards = [...effects].reverse();
  const draw = (element) => {
    const series = ["down", "up"].map((end) => upwards.map((effect) => (effect[end] / base - 1) * 100));
    const most = Math.max(...series.flat().map(Math.abs), 1e-9);
    return new BarChart(element, { labels: upwards.map(({ input }) => input.label), series },
      { horizontalBars: true, stackBars: true, stackMode: "overlap", high: most, low: -most, axisY: { offset: 190 }, axisX: { labelInterpolationFnc: (value) => `${short(writeValue(value, { unit: "", scale: 1 }))} %`, scaleMinSpace: 60 }, chartPadding: { right: 30 } })
      .on("draw", (context) => context.type === "bar" && context.element.attr({ style: "stroke-width: 16px" }));
  };
  return (
    <div>
      <label class="pick">What moves <select value={id} onChange={({ currentTarget: box }) => setId(box.value)}>
        {figures.map((one) => <option key={one} value={one}>{entryOf(model, one).label}</option>)}
      </select></label>
      <Chart title={`${entry.label}: change for 10 % less and more of an input`} columns={["Input", "10 % less", "10 % more", "at its low end", "at its high end"]} draw={draw}
             height={`${effects.length * 32 + 50}px`} rows={effects.map(({ input, down, up, atLow, atHigh }) => [input.label, ...[down, up, atLow, atHigh].map((value) => writeValue(value, entry))])} />
    </div>
  );
}

export function NandDemand({ model, values }) {
  const ids = ["nand_demand", "nand_v41", "nand_v4", "nand_mla_fp8", "nand_mla_bf16", "nand_qwen_235b", "nand_llama_70b", "nand_llama_405b"];
  const bars = ids.map((id) => ({ label: entryOf(model, id).label, value: valueOf(model, values, id), entry: entryOf(model, id) }));
  const supply = entryOf(model, "supply");
  bars.push({ label: supply.label, value: valueOf(model, values, "supply"), entry: supply });
  return <Bars title="NAND for the KV of a year's cards against supply" unit="EB" column="Model" bars={bars} mark={valueOf(model, values, "supply") / supply.scale} />;
}
