// The whole view: three models behind tabs, inputs on the left, answers on the right.
import { useEffect, useMemo, useState } from "preact/hooks";
import { CapacityOverDays, CostParts, NandDemand, PaybackOverDays, Tornado } from "./charts.jsx";
import { Cluster } from "./cluster.jsx";
import { FigureGroups, FigureList, Findings } from "./figures.jsx";
import { Inputs } from "./inputs.jsx";
import { computeModel, hardware, models, notesOf, planDeployment, textOf, toCsv, toJson } from "./plan.js";
import { fresh, parseState, tabs, writeState } from "./state.js";

function useAddress() {
  const [state, setState] = useState(() => parseState(location.hash));
  useEffect(() => {
    const listen = () => setState(parseState(location.hash));
    addEventListener("hashchange", listen);
    return () => removeEventListener("hashchange", listen);
  }, []);
  const change = (next) => {
    setState(next);
    history.replaceState(null, "", writeState(next) || location.pathname + location.search);
  };
  return [state, change];
}

function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function Share({ model, values }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      setSaid("The link is copied.");
    } catch {
      setSaid("The address of this page is the link.");
    }
  };
  return (
    <div class="share">
      <button type="button" onClick={copy}>Copy link</button>
      <button type="button" onClick={() => save(`${model.name}.csv`, "text/csv", toCsv(model, values))}>CSV</button>
      <button type="button" onClick={() => save(`${model.name}.json`, "application/json", toJson(model, values))}>JSON</button>
      <span role="status">{said}</span>
    </div>
  );
}

function Notes({ notes }) {
  return notes.length > 0 && <section aria-label="Notes"><h3>Note</h3><ul>{notes.map((note) => <li key={note}>{note}</li>)}</ul></section>;
}

function DeploymentAnswers({ plan }) {
  const { model, values, given, notes, hardware: machine } = plan;
  const text = (id) => textOf(model, values, id);
  if (machine.problem) return <p class="error" role="alert">{machine.problem} Change the server (tab "One CPU server") or the speed wanted.</p>;
  return (
    <>
      <section aria-label="Summary" aria-live="polite" class="summary">
        <div><strong>{text("prefill_cards").replace(" cards", "")} + {text("decode_cards").replace(" cards", "")}</strong> {machine.card}s, prefill + decode</div>
        <div><strong>{text("store_size")}</strong> of KV on {text("drives")} drives</div>
        <div><strong>{text("ttft")}</strong> to the first token</div>
        <div><strong>{text("cost_token").replace(" per 1M tokens", "")}</strong> per 1M tokens</div>
        <div><strong>{text("cost").replace(" per hour", "")}</strong> an hour; the price list earns {text("margin")} that</div>
      </section>
      <Cluster model={model} values={values} hardware={machine} />
      <Notes notes={notes} />
      <div class="charts">
        <CostParts model={model} values={values} />
        <CapacityOverDays model={model} given={given} />
        <PaybackOverDays model={model} given={given} />
        <Tornado model={model} values={values} figures={["cost_token", "cards", "store_size", "ttft", "margin"]} />
      </div>
      <FigureGroups model={model} values={values} />
    </>
  );
}

function PublishedAnswers({ model, values }) {
  const numbered = model.figures.filter((figure) => figure.number > 0).sort((a, b) => a.number - b.number);
  return (
    <>
      <p>What was told about the service, recomputed from a few inputs. Open a figure to see how it comes about; letters are findings: where the numbers do not add up, or lean on something unsaid.</p>
      <h3>28 figures</h3>
      <FigureList model={model} values={values} figures={numbered} />
      <Findings model={model} values={values} />
      <div class="charts">
        <NandDemand model={model} values={values} />
        <Tornado model={model} values={values} figures={["mean_revenue", "cards", "ssd_per_card_long", "payback_low", "nand_demand", "store_return"]} />
      </div>
      <h3>What else follows</h3>
      <FigureList model={model} values={values} figures={model.figures.filter((figure) => figure.number === 0)} />
    </>
  );
}

function ServerAnswers({ model, values }) {
  return (
    <>
      <p>What one CPU server does with this model: bytes and arithmetic of a step against bandwidth and cores. "Your deployment" uses it when its hardware is a CPU server.</p>
      <Notes notes={notesOf(model, values)} />
      <div class="charts"><Tornado model={model} values={values} figures={["decode_rate", "user_speed", "miss_rate"]} /></div>
      <FigureGroups model={model} values={values} />
    </>
  );
}

const kOpen = { deployment: ["Traffic"], published: ["Rates and cards"], server: ["Server"] };

export function App() {
  const [state, change] = useAddress();
  const model = models[state.tab];
  const changes = state.changes[state.tab] ?? {};
  const plan = useMemo(() => (state.tab === "deployment" ? planDeployment(state) : null), [state]);
  const values = plan ? plan.values : computeModel(model, changes);
  const setInput = (id, value) => {
    const { [id]: before, ...others } = changes;
    change({ ...state, changes: { ...state.changes, [state.tab]: value === undefined ? others : { ...others, [id]: value } } });
  };
  useEffect(() => {
    document.title = `${tabs.find((tab) => tab.id === state.tab).label} · DeepInfer planner`;
  }, [state.tab]);
  return (
    <div class="page">
      <a class="skip" href="#answers" onClick={(event) => { event.preventDefault(); document.getElementById("answers").focus(); }}>Skip to the answers</a>
      <header>
        <h1>DeepInfer planner</h1>
        <nav aria-label="Models">
          {tabs.map((tab) => (
            <button type="button" key={tab.id} aria-current={tab.id === state.tab ? "page" : undefined} onClick={() => change({ ...state, tab: tab.id })}>{tab.label}</button>
          ))}
        </nav>
        <Share model={model} values={values} />
      </header>
      <div class="columns">
        <form aria-label="Inputs" onSubmit={(event) => event.preventDefault()}>
          <h2>Inputs</h2>
          {state.tab === "deployment" && (
            <div class="field">
              <label for="hardware">Hardware</label>
              <select id="hardware" value={state.hardware} onChange={({ currentTarget: box }) => change({ ...state, hardware: box.value })}>
                {hardware.map((one) => <option key={one.name} value={one.name}>{one.label}</option>)}
                <option value="cpu">CPU server (of its tab)</option>
              </select>
              <span class="source">{plan.hardware.label}: {plan.hardware.source}; confidence {plan.hardware.confidence}</span>
            </div>
          )}
          <Inputs model={model} values={values} changes={changes} open={kOpen[state.tab]} onChange={setInput} key={state.tab} />
          <button type="button" onClick={() => change({ ...fresh(), tab: state.tab })}>Reset all</button>
        </form>
        <main id="answers" tabindex="-1" aria-label="Answers">
          <h2>{model.title}</h2>
          {state.tab === "deployment" && <DeploymentAnswers plan={plan} />}
          {state.tab === "published" && <PublishedAnswers model={model} values={values} />}
          {state.tab === "server" && <ServerAnswers model={model} values={values} />}
        </main>
      </div>
    </div>
  );
}
