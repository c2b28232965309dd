// The cluster as a picture: areas follow the numbers.
import { textOf, valueOf } from "./plan.js";

const kMostSquares = 120;

// `count` small squares of a grid of `side` pixels; when there are too many, each stands for several.
function Squares({ x, y, side, count, kind }) {
  const each = Math.max(1, Math.ceil(count / kMostSquares));
  const shown = Math.max(1, Math.round(count / each));
  const columns = Math.ceil(Math.sqrt(shown));
  const size = side / columns;
  return Array.from({ length: shown }, (_, i) => (
    <rect key={i} class={kind} x={x + (i % columns) * size + size * 0.1} y={y + Math.floor(i / columns) * size + size * 0.1} width={size * 0.8} height={size * 0.8} rx={size * 0.12} />
  ));
}

export function Cluster({ model, values, hardware }) {
  const of = (id) => valueOf(model, values, id);
  const text = (id) => textOf(model, values, id);
  const many = (count) => `${Math.round(count).toLocaleString("en")} ${hardware.card}${count === 1 ? "" : "s"}`;
  const most = Math.max(of("prefill_cards"), of("decode_cards"));
  const side = (count) => Math.max(24, 170 * Math.sqrt(count / most));
  const prefill = side(of("prefill_cards"));
  const decode = side(of("decode_cards"));
  const drives = Math.min(170, Math.max(16, 18 * Math.log10(1 + of("drives")) * 2));
  const title = `${many(of("prefill_cards"))} for prefill send ${text("decode_link")} of KV to each unit of ${many(of("decode_cards"))} for decode; ${text("drives")} drives hold ${text("store_size")} of KV`;
  return (
    <svg class="cluster" viewBox="0 0 640 330" role="img" aria-label={title}>
      <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" class="head" /></marker></defs>
      <text x="110" y="20" class="name">Prefill</text>
      <text x="110" y="38">{many(of("prefill_cards"))}, {text("prefill_load")} busy</text>
      <Squares x={110 - prefill / 2} y={130 - prefill / 2} side={prefill} count={of("prefill_cards")} kind="prefill" />
      <text x="530" y="20" class="name">Decode</text>
      <text x="530" y="38">{many(of("decode_cards"))}, {text("decode_load")} busy</text>
      <Squares x={530 - decode / 2} y={130 - decode / 2} side={decode} count={of("decode_cards")} kind="decode" />
      <line x1="205" y1="130" x2="435" y2="130" class="flow" marker-end="url(#head)" />
      <text x="320" y="118">{text("decode_link")} to a unit</text>
      <line x1="110" y1="222" x2="245" y2="275" class="flow" marker-end="url(#head)" />
      <text x="125" y="270">{text("store_writes")} writes</text>
      <line x1="300" y1="240" x2="190" y2="205" class="flow" marker-end="url(#head)" />
      <text x="320" y="222">{text("store_reads")} reads</text>
      <rect class="store" x={320 - drives / 2} y="245" width={drives} height="46" rx="8" />
      <text x="320" y="310" class="name">{text("store_size")} on {text("drives")} drives</text>
    </svg>
  );
}
