"""Compares this forward with reference data in the golden/tiny layout: proof that the architecture is exact."""
import argparse
import json
import os
import sys

import numpy as np

import checkpoint
import engram
import model as M


def rel(a, b):
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    return float(np.sqrt(((a - b) ** 2).mean() / max((b ** 2).mean(), 1e-30)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("folder", help="checkpoint folder")
    ap.add_argument("--golden", help="folder with prompts/*.safetensors (default: the checkpoint folder)")
    ap.add_argument("--prompts", default="p015,p064")
    a = ap.parse_args()
    golden = a.golden or a.folder
    cfg, params = checkpoint.load(a.folder)
    tok = json.load(open(os.path.join(a.folder, "tokenizer.json")))
    tmap = engram.token_map(tok, cfg.vocab_size)
    hashes = engram.Hash(cfg.raw["text_config"], tmap)
    const = os.path.join(golden, "engram_constants.safetensors")
    if os.path.exists(const):
        c = checkpoint.read_file(const)
        print("engram constants equal:", all((np.asarray(x) == c[k]).all() for k, x in (
            ("token_map", tmap), ("primes", hashes.primes), ("offsets", hashes.offsets), ("multipliers", hashes.mults))))
    mode = M.Mode(caches=True, acts=True, restrict=True, exact_topk=True, collect=True)
    ok = True
    for name in a.prompts.split(","):
        g = checkpoint.read_file(os.path.join(golden, "prompts", name + ".safetensors"))
        tokens = np.concatenate([g["ids"], g["dec.f32.tokens"]]) if "dec.f32.tokens" in g else g["ids"]
        n, total = len(g["ids"]), len(tokens)
        T = -(-total // 128) * 128
        ids, seg = np.full((1, T), cfg.pad if hasattr(cfg, "pad") else 2), np.full((1, T), -1)
        ids[0, :total], seg[0, :total] = tokens, 0
        rows = hashes.rows(ids, np.zeros_like(ids))
        print(f"{name}: engram rows equal", (rows[:, 0, :n].transpose(1, 0, 2) == g["engram_rows"]).all())
        x, mainh, out = M.backbone(cfg, params, ids, seg, rows, mode)
        lg = np.asarray(M.logits(params, x))[:n]
        want = g["one.f32.logits"]
        r, same = rel(lg, want), int((lg.argmax(-1) == want.argmax(-1)).sum())
        print(f"{name}: logits rel rms {r:.4f}, top-1 {same}/{n}, first two rows {rel(lg[:2], want[:2]):.2e}")
        ok &= r < 0.25 and same >= 0.85 * n
        for k in ("attn_in", "attn_out", "ffn_in", "ffn_out", "h_out", "pre_out"):
            v = [rel(np.asarray(out[k][L])[:n], g["one.f32." + k][:, L]) for L in range(cfg.n_layers)]
            print(f"  {k:9s}", " ".join(f"{e:.4f}" for e in v))
        print("  win      ", " ".join(f"{rel(np.asarray(out['win'][L])[0, :n], g['one.f32.win'][:, L]):.4f}"
                                      for L in range(cfg.n_layers)))
        sel = [np.asarray(s)[0, :n] for s in out["sel"]]
        for i, s in enumerate(sel):
            gold = np.zeros_like(s)
            for t in range(n):
                gold[t, [j for j in g["one.f32.topk"][t, i] if j >= 0]] = True
            print(f"  top-k rows equal, source {i}: {int((gold == s).all(1).sum())}/{n}")
        print("  main_hidden", rel(np.asarray(mainh)[:n], g["one.f32.main_hidden"]))
        if "dec.f32.draft_logits" in g:
            last = T - 1 - cfg.dspark_block_size
            anchors = np.array([[p for p in range(n, total - cfg.dspark_block_size - 1) if p <= last]])
            dl, conf = M.dspark(cfg, params, np.asarray(mainh).reshape(1, T, -1), ids, seg, anchors, mode)
            first = np.asarray(dl)[0, :, 0]
            want = g["dec.f32.draft_logits"][:len(first), 0]
            print("  first draft row: rel", rel(first, want), "top-1", (first.argmax(-1) == want.argmax(-1)).mean(),
                  "confidence rel", rel(np.asarray(conf)[0, :, 0], g["dec.f32.draft_conf"][:len(first), 0]))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
