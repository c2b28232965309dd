"""Trains the mini model: resumable, deterministic from the seed, one phase per call (see PHASES and README.md)."""
import argparse
import functools
import json
import os
import pickle
import signal
import threading
import time
import queue

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_enable_fast_math=true --xla_cpu_fast_math_honor_infs=true "
                                   "--xla_cpu_fast_math_honor_nans=true")
import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

import checkpoint
import data
import engram
import fast
import model as M
import optim

M.fast = fast

# T, B: row length and rows per batch; quant: weights and caches as exported;
# restrict: true top-k (all_blocks: without candidate blocks); dspark: only the draft stages, with joint: backbone and
# drafts; index: weight of the indexer's loss; warm, decay: steps of linear growth at the start / share of linear decay at
# the end; turns: what differs in every second step.
PHASES = {
    "base": dict(T=512, B=4, warm=60, decay=0.0, rate=1.0),
    "copy": dict(T=256, B=8, warm=30, decay=0.0, rate=1.0, copy_share=0.75),
    "mixed": dict(T=2048, B=1, quant=True, dspark=True, joint=True, index=0.3, warm=20, decay=0.0, rate=1.0,
                  copy_share=0.05, turns=dict(restrict=True, index=None)),
    "long": dict(T=4096, B=1, quant=True, dspark=True, joint=True, restrict=True, all_blocks=True, index=0.2, warm=5,
                 decay=1.0, rate=0.5, copy_share=0.03, turns=dict(all_blocks=None, index=None)),
    "dspark": dict(T=512, B=8, quant=True, dspark=True, warm=20, decay=0.4, rate=1.0),
}
ANCHOR_EVERY = 16
MEAN_EVERY = 10   # steps; the mean of the weights moves a tenth of the way: it forgets in about 100 steps


def load_data(folder, phase, seed):
    """(config, batch source)."""
    cfg = M.Config(json.load(open(f"{folder}/config.json")))
    tok = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tmap = engram.token_map(json.load(open(f"{folder}/tokenizer.json")), cfg.vocab_size)
    hashes = engram.Hash(cfg.raw["text_config"], tmap)
    return cfg, hashes, data.Packer(tok, hashes, phase["T"], phase["B"], seed, phase.get("copy_share", 0.0))


def prefetch(packer, hashes, first, depth=3):
    """Batches from number `first` on, made in a thread."""
    q = queue.Queue(depth)

    def work():
        n = first
        while True:
            ids, seg, weight, start = packer.batch(n)
            q.put((n, ids, seg, weight, hashes.rows(ids, start)))
            n += 1
    threading.Thread(target=work, daemon=True).start()
    while True:
        yield q.get()


def cross_entropy(lg, target):
    return jax.nn.logsumexp(lg, -1) - jnp.take_along_axis(lg, target[..., None], -1)[..., 0]


def backbone_loss(cfg, phase, params, ids, seg, weight, rows):
    p = M.quantized(params) if phase.get("quant") else params
    mode = M.Mode(caches=phase.get("quant", False), restrict=phase.get("restrict", False),
                  candidates=not phase.get("all_blocks", False), index_loss="index" in phase)
    w = weight[:, 1:] * (seg[:, 1:] == seg[:, :-1]) * (seg[:, 1:] >= 0)
    focus = jnp.pad(0.2 + 2 * w * w, ((0, 0), (0, 1)))   # answers need the right rows, most of all in recall
    x, main, out = M.backbone(cfg, p, ids, seg, rows, mode, focus=focus)
    lg = M.logits(p, x).reshape(ids.shape + (-1,))
    ce = cross_entropy(lg[:, :-1], ids[:, 1:])
    hard = w >= 1
    right = (lg[:, :-1].argmax(-1) == ids[:, 1:])
    loss = (ce * w).sum() / w.sum()
    info = {"main": main, "loss": (ce * hard).sum() / hard.sum(), "top1": (right & hard).sum() / hard.sum(),
            "load": jnp.stack(out["chosen"])}
    if "index" in phase:
        kl = sum(out["kl"]) / len(out["kl"])
        info["kl"] = kl
        loss = loss + phase["index"] * kl
    return loss, info


def dspark_loss(cfg, p, main, ids, seg, weight, anchors):
    """Draft loss over blocks after the anchors; nothing flows back into the backbone."""
    mode = M.Mode(caches=True)
    B, T = ids.shape
    lg, conf = M.dspark(cfg, p, jax.lax.stop_gradient(main).reshape(B, T, -1), ids, seg, anchors, mode)
    pos = anchors[..., None] + 2 + np.arange(cfg.dspark_block_size)
    b = np.arange(B)[:, None, None]
    target = ids[b, pos]
    same = (seg[b, pos] == seg[b, anchors[..., None]]) & (seg[b, pos] >= 0)
    w = weight[b, pos] * same
    hit = (lg.argmax(-1) == target) & same
    bce = jax.nn.softplus(conf) - conf * jax.lax.stop_gradient(hit)
    loss = (cross_entropy(lg, target) * w).sum() / w.sum() + 0.1 * (bce * w).sum() / w.sum()
    full = (w >= 1).all(-1)
    run = (jnp.cumprod(hit, -1).sum(-1) * full).sum() / jnp.maximum(full.sum(), 1)
    return loss, {"loss": loss, "top1": (hit * (w >= 1)).sum() / (w >= 1).sum(), "run": run}


def schedule(phase, step, steps):
    warm = min(1.0, (step + 1) / phase["warm"])
    tail = phase["decay"] * steps
    down = min(1.0, (steps - step) / tail) if tail else 1.0
    return phase["rate"] * warm * max(down, 0.0)


def is_draft(name):
    return name.startswith("mtp.")


def make_step(cfg, phase):
    if phase.get("dspark") and not phase.get("joint"):
        def step(params, opt, rate, ids, seg, weight, rows, anchors):
            train = {k: v for k, v in params.items() if is_draft(k) and "gate.bias" not in k}
            fixed = {k: v for k, v in params.items() if k not in train}
            p = M.quantized(fixed)
            main = M.backbone(cfg, p, ids, seg, rows, M.Mode(caches=True))[1]
            f = lambda t: dspark_loss(cfg, p | M.quantized(t), main, ids, seg, weight, anchors)
            (_, info), g = jax.value_and_grad(f, has_aux=True)(train)
            params, opt, norm = optim.update(params, g, opt, rate)
            return params, opt, info | {"norm": norm}
    else:
        def step(params, opt, rate, ids, seg, weight, rows, anchors=None):
            skip = lambda k: (is_draft(k) and anchors is None) or k.endswith("gate.bias") or \
                ("indexer" in k and "index" not in phase)
            train = {k: v for k, v in params.items() if not skip(k)}
            fixed = {k: v for k, v in params.items() if skip(k)}

            def f(t):
                loss, info = backbone_loss(cfg, phase, t | fixed, ids, seg, weight, rows)
                main = jax.lax.stop_gradient(info.pop("main"))
                if anchors is not None:
                    sg = {k: jax.lax.stop_gradient(v) for k, v in (t | fixed).items() if not is_draft(k)}
                    p = M.quantized(sg | {k: v for k, v in (t | fixed).items() if is_draft(k)})
                    draft, more = dspark_loss(cfg, p, main, ids, seg, weight, anchors)
                    loss, info = loss + draft, info | {"draft_" + k: v for k, v in more.items()}
                return loss, info
            (_, info), g = jax.value_and_grad(f, has_aux=True)(train)
            params, opt, norm = optim.update(params, g, opt, rate)
            load = info.pop("load")
            share = load / load.sum(-1, keepdims=True) * load.shape[-1]
            for L in range(cfg.n_layers):
                b = params[f"layers.{L}.ffn.gate.bias"] - 0.01 * jnp.minimum(rate, 1) * jnp.sign(share[L] - 1)
                params[f"layers.{L}.ffn.gate.bias"] = b - b.mean()
            return params, opt, info | {"norm": norm, "worst": share.max()}
    return jax.jit(step, donate_argnums=(0, 1))


def save(path, state):
    with open(path + ".new", "wb") as f:
        pickle.dump(jax.tree.map(np.asarray, state), f)
    os.replace(path + ".new", path)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("phase", choices=PHASES)
    ap.add_argument("--model", default="models/mini", help="folder with config.json and tokenizer.json")
    ap.add_argument("--out", default=os.path.expanduser("~/.cache/deepinfer-mini/run"))
    ap.add_argument("--start", help="checkpoint to start the phase from (default: fresh or the phase's own)")
    ap.add_argument("--keep-optimizer", action="store_true", help="with --start: go on with its optimizer state")
    ap.add_argument("--from-export", metavar="DIR", help="start from an exported checkpoint folder instead")
    ap.add_argument("--steps", type=int, default=4000)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--rate", type=float, help="overrides the phase's learning-rate factor")
    ap.add_argument("--decay", type=float, help="overrides the phase's share of decay")
    ap.add_argument("--T", type=int, help="overrides the row length")
    ap.add_argument("--B", type=int, help="overrides the rows per batch")
    ap.add_argument("--copy-share", type=float, help="overrides the phase's share of copying exercises")
    ap.add_argument("--seconds", type=float, help="end after this time; the decay then follows the clock, not the steps")
    ap.add_argument("--save-every", type=float, default=120, help="seconds")
    a = ap.parse_args()
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/deepinfer-mini/xla"))
    phase = dict(PHASES[a.phase])
    for k in ("rate", "decay", "T", "B", "copy_share"):
        if getattr(a, k) is not None:
            phase[k] = getattr(a, k)
    os.makedirs(a.out, exist_ok=True)
    cfg, hashes, packer = load_data(a.model, phase, f"{a.seed}/{a.phase}")
    own = f"{a.out}/{a.phase}.pkl"
    if os.path.exists(own) and not a.start and not a.from_export:
        state = pickle.load(open(own, "rb"))
    elif a.start:
        state = pickle.load(open(a.start, "rb")) | {"step": 0}
        if not a.keep_optimizer:
            state["opt"] = optim.init(state["params"])
    else:
        params = checkpoint.load(a.from_export)[1] if a.from_export else M.init(cfg, a.seed)
        state = {"params": params, "opt": optim.init(params), "step": 0, "tokens": 0}
    state.setdefault("mean", state["params"])
    print(f"{sum(v.size for v in state['params'].values()) / 1e6:.2f} M parameters, phase {a.phase} {phase}", flush=True)
    params, opt, mean = jax.tree.map(jnp.array, (state["params"], state["opt"], state["mean"]))
    toward = jax.jit(lambda m, p: jax.tree.map(lambda a, b: a + 0.1 * (b - a), m, p), donate_argnums=0)
    step_fns = [make_step(cfg, phase)]
    if "turns" in phase:
        step_fns.append(make_step(cfg, {k: v for k, v in (phase | phase["turns"]).items() if v is not None}))
    tokens, begun = int(state["tokens"]), int(state["step"])
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))   # save and end
    t0, saved, sums, n = time.time(), time.time(), {}, 0
    first, compiled = time.time(), 0.0
    for number, ids, seg, weight, rows in prefetch(packer, hashes, begun):
        used = time.time() - first
        if ended or number >= a.steps or (a.seconds and used > a.seconds):
            break
        extra = ()
        if phase.get("dspark"):
            count = phase["T"] // ANCHOR_EVERY - 2
            off = np.random.default_rng(number).integers(0, ANCHOR_EVERY, (phase["B"], count))
            extra = (jnp.asarray(np.arange(count) * ANCHOR_EVERY + off),)
        rate = schedule(phase, number, a.steps)
        if a.seconds:
            rate = min(rate, phase["rate"] * max(0.0, (a.seconds - used) / (a.seconds - compiled)) / phase["decay"])
        params, opt, info = step_fns[number % len(step_fns)](params, opt, rate, ids, seg, weight, rows, *extra)
        tokens += int((seg >= 0).sum())
        for k, v in info.items():
            sums.setdefault(k, []).append(float(v))
        n += 1
        if number % MEAN_EVERY == 0:
            mean = toward(mean, params)
        compiled = compiled or time.time() - first
        if number == begun or (number + 1) % 20 == 0:
            dt = time.time() - t0
            line = {k: round(sum(v) / len(v), 4) for k, v in sums.items()}
            print(f"{time.strftime('%H:%M:%S')} step {number + 1} rate {rate:.3f} Mtok {tokens / 1e6:.3f} "
                  f"tok/s {phase['T'] * phase['B'] * n / dt:.0f} {line}", flush=True)
            t0, sums, n = time.time(), {}, 0
        if time.time() - saved > a.save_every or number + 1 == a.steps:
            save(own, {"params": params, "mean": mean, "opt": opt, "step": number + 1, "tokens": tokens})
            saved = time.time()
    save(own, {"params": params, "mean": mean, "opt": opt, "step": number, "tokens": tokens})


if __name__ == "__main__":
    main()
