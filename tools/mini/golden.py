"""Reference outputs of the exported model in the golden/tiny layout, and the teacher file of held-out prompts.

The forward is the trainer's with every quantizer on (`export.EXACT`), so it is what an engine has to meet.
Short prompts carry all layers; long ones only the logits of their last positions (`split.f32.S.logits`), which an
engine reproduces by prefilling S tokens and feeding the others one at a time.
"""
import argparse
import dataclasses
import json
import os
import random

import jax
import ml_dtypes
import numpy as np

import checkpoint
import data
import engram
import model as M
from export import EXACT
from tokenizers import Tokenizer

TEACHER_SEED, PROMPT_SEED = "held-out teacher", "held-out golden"
FULL = {n: n == 12 for n in (*range(2, 21), 36)}   # length: with top-k lists
SPLITS = {150: 12, 400: 8, 700: 8}                 # length: rows of logits


class Forward:
    """The model in a folder as a function of one list of ids; rows are padded to few lengths."""

    def __init__(self, folder, mode=EXACT):
        self.cfg, params = checkpoint.load(folder)
        parsed = json.load(open(os.path.join(folder, "tokenizer.json")))
        self.hashes = engram.Hash(self.cfg.raw["text_config"], engram.token_map(parsed, self.cfg.vocab_size))
        self.params = {k: jax.numpy.asarray(v) for k, v in params.items()}

        def run(params, ids, seg, rows):
            x, main, out = M.backbone(self.cfg, params, ids, seg, rows, mode)
            return M.logits(params, x), main, {k: v for k, v in out.items() if k not in ("chosen", "kl", "main")}
        self.run = jax.jit(run)

    def __call__(self, ids):
        """(logits [n, V], main_hidden [n, 3 D], intermediates) of the whole row; padding is at the end, unseen."""
        n = len(ids)
        T = next(t for t in (128, 256, 512, 768, 1024, 2048, 4096, 8192) if t >= n)
        row = np.full((1, T), 2, np.int32)
        row[0, :n] = ids
        lg, main, out = self.run(self.params, row, np.zeros_like(row), self.hashes.rows(row, np.zeros_like(row)))
        return np.asarray(lg)[:n], np.asarray(main)[:n], out


def conversation_ids(tok, rng, length):
    """Ids of held-out conversations, cut to `length`; the first is the longest recall text that is needed."""
    while True:
        text = "".join(t for t, _ in data.document(rng, length + 200, 0.8 if length > 200 else 0.0))
        ids = tok.encode(text, add_special_tokens=False).ids
        if len(ids) >= length:
            return np.array(ids[:length], np.int32)


def chosen_experts(route, k):
    """Per position: experts by falling score, their weights, margin to the first that is left out."""
    biased, w = np.asarray(route["biased"]), np.asarray(route["w"])
    order = np.argsort(-biased, 1, kind="stable")
    best = order[:, :k]
    take = lambda v, i: np.take_along_axis(v, i, 1)
    return best.astype(np.int32), take(w, best), (take(biased, order[:, k - 1:k]) - take(biased, order[:, k:k + 1]))[:, 0]


def selected_rows(mask, width):
    out = np.full((len(mask), width), -1, np.int32)
    for t, row in enumerate(mask):
        hit = np.flatnonzero(row)
        out[t, :len(hit)] = hit
    return out


def layer_tensors(cfg, out, main, rows, n, with_topk):
    """Tensors of every layer, named as in golden/tiny."""
    bf = lambda v: ("BF16", np.asarray(v, np.float32).astype(ml_dtypes.bfloat16))
    stack = lambda k: np.stack([np.asarray(v)[:n] for v in out[k]], 1)
    t = {f"one.f32.{k}": bf(stack(k)) for k in ("attn_out", "ffn_out", "h_out")}
    if with_topk:
        t |= {f"one.f32.{k}": bf(stack(k)) for k in ("attn_in", "ffn_in")}
        t["one.f32.topk"] = ("I32", np.stack([selected_rows(np.asarray(s)[0, :n], cfg.index_topk) for s in out["sel"]], 1))
    t["one.f32.engram_out"] = bf(stack("engram"))
    t["one.f32.pre_out"] = ("F32", stack("pre_out"))
    t["one.f32.win"] = bf(np.stack([np.asarray(v)[0, :n] for v in out["win"]], 1))
    routes = [chosen_experts({k: np.asarray(v)[:n] for k, v in r.items()}, cfg.num_experts_per_tok) for r in out["route"]]
    for i, (name, dtype) in enumerate((("route_idx", "I32"), ("route_w", "F32"), ("route_margin", "F32"))):
        t[f"one.f32.{name}"] = (dtype, np.stack([r[i] for r in routes], 1))
    for L in cfg.kv_source_layer_ids:
        have = n // cfg.compress_ratios[L]
        t[f"one.f32.ck.{L}"] = bf(np.asarray(out["ck"][L])[0, :have])
        t[f"one.f32.ik.{L}"] = bf(np.asarray(out["ik"][L])[0, :have])
    t["one.f32.main_hidden"] = bf(main)
    t["engram_rows"] = ("I32", rows)
    return t


def write_prompts(folder, forward, tok):
    rng = random.Random(PROMPT_SEED)
    os.makedirs(folder, exist_ok=True)
    total = 0
    for n in list(FULL) + list(SPLITS):
        ids = conversation_ids(tok, rng, n)
        lg, main, out = forward(ids)
        t = {"ids": ("I32", ids)}
        if n in FULL:
            rows = forward.hashes.rows(ids[None], np.zeros((1, n), np.int32))[:, 0].transpose(1, 0, 2)
            t["one.f32.logits"] = ("F32", lg)
            t |= layer_tensors(forward.cfg, out, main, rows.astype(np.int32), n, FULL[n])
        else:
            t[f"split.f32.{n - SPLITS[n] + 1}.logits"] = ("F32", lg[-SPLITS[n]:])
        total += checkpoint.write_file(os.path.join(folder, f"p{n:03d}.safetensors"), t)
    return total


def write_constants(path, hashes):
    t = {"token_map": ("I32", np.asarray(hashes.map, np.int32))}
    t |= {k: (("I64" if k == "multipliers" else "I32"), np.asarray(v, np.int64 if k == "multipliers" else np.int32)) for k, v in
          (("primes", hashes.primes), ("offsets", hashes.offsets), ("multipliers", hashes.mults))}
    checkpoint.write_file(path, t)


def write_teacher(path, forward, tok, count=200, limit=128):
    """One JSON line a prompt: ids, loss_from (first predicted position), mean loss and arg max of each prediction."""
    rng, done, losses = random.Random(TEACHER_SEED), 0, []
    with open(path, "w") as f:
        while done < count:
            ids = tok.encode("".join(t for t, _ in data.document(rng, limit)), add_special_tokens=False).ids
            if len(ids) > limit:
                continue
            start = ids.index(tok.token_to_id(data.ASSISTANT)) + 2   # after <think> or </think>
            lg = forward(ids)[0].astype(np.float64)[start - 1:-1]
            peak = lg.max(1)
            loss = float((np.log(np.exp(lg - peak[:, None]).sum(1)) + peak - lg[np.arange(len(lg)), ids[start:]]).mean())
            losses.append(loss)
            f.write(json.dumps({"ids": ids, "loss_from": start, "loss": round(loss, 6),
                                "top1": lg.argmax(1).tolist()}, separators=(",", ":")) + "\n")
            done += 1
    return float(np.mean(losses))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="models/mini")
    a = ap.parse_args()
    tok = Tokenizer.from_file(os.path.join(a.model, "tokenizer.json"))
    golden = os.path.join(a.model, "golden")
    layers = Forward(a.model, dataclasses.replace(EXACT, collect=True))
    size = write_prompts(os.path.join(golden, "tiny", "prompts"), layers, tok)
    write_constants(os.path.join(golden, "tiny", "engram_constants.safetensors"), layers.hashes)
    loss = write_teacher(os.path.join(golden, "teacher.jsonl"), layers, tok)
    print(f"prompts {size / 1e6:.2f} MB, teacher loss {loss:.4f}")


if __name__ == "__main__":
    main()
