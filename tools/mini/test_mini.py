"""Unit tests of the trainer's tools: `python -m unittest discover -s tools/mini -p test_mini.py`."""
import json
import os
import random
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import jax
import numpy as np
from tokenizers import Tokenizer

import checkpoint
import data
import engram
import evaluate
import model as M
import quant as Q

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "mini")


def values(*shape):
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


class Kernels(unittest.TestCase):
    """The C++ kernels of the trainer give the outputs and gradients of the plain forward."""

    def setUp(self):
        import fast
        self.fast, self.cfg = fast, M.Config(json.load(open(os.path.join(FOLDER, "config.json"))))

    def check(self, plain, kernel, *args):
        n = tuple(range(len(args)))
        for want, got in zip(*(jax.tree.leaves(jax.value_and_grad(f, n, has_aux=True)(*args)) for f in (plain, kernel))):
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(want).max(initial=1e-9))

    def test_attention(self):
        rng, seg = np.random.default_rng(1), np.zeros((2, 256), np.int32)
        seg[0, 100:], seg[0, 180:], seg[0, 230:] = 1, 2, -1
        lay, mode = M.Layout(self.cfg, seg), M.Mode(index_loss=True)
        draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
        q, kv, sink, g = 2 * draw(2, 256, 4, 64), draw(2, 256, 64), draw(4), draw(2, 256, 4, 64)
        for ratio in (1, 2):
            ck = draw(2, 256 // ratio, 64)
            some = np.asarray(lay.visible[ratio]) & (rng.random((2, 256, 256 // ratio)) < 0.3)
            for rows, select in ((None, np.zeros((2, 256, 0), bool)), (ck, np.zeros((2, 256, 0), bool)), (ck, some)):
                seen = some if select.size else lay.visible[ratio]

                def plain(q, kv, ck, sink):
                    o, mass = M.plain_attend(self.cfg, q, kv, None if rows is None else ck, sink, lay, seen, mode)
                    return (o * g).sum(), (o, mass if rows is not None else np.zeros((2, 256 // M.INDEX_EVERY, 0)))

                def kernel(q, kv, ck, sink):
                    used = ck[:, :0] if rows is None else ck
                    o, mass = self.fast.attend(self.cfg.W, M.INDEX_EVERY, q, kv, used, sink, lay.start, select)
                    return (o * g).sum(), (o, mass)
                self.check(plain, kernel, q, kv, ck, sink)

    def test_selection(self):
        seg = np.zeros((1, 1024), np.int32)
        seg[0, 700:] = 1
        lay = M.Layout(self.cfg, seg)
        q, w, keys = values(1, 1024, 4, 32), np.abs(values(1, 1024, 4)), values(1, 1024, 32)
        scores = M.index_scores(q, w, keys)
        near = np.asarray(M.candidates(self.cfg, scores, lay.visible[1]))
        for allowed, blocks in ((np.zeros((1, 1024, 0), bool), self.cfg.candidate_topk_blocks), (near, 0)):
            want = M.top_rows(scores, near if allowed.size else lay.visible[1], 256, True)
            best, blocks_of = self.fast.select(q, w, keys, lay.start, allowed, 256, blocks, 8)
            least = np.where(want, scores, np.inf).min(-1, keepdims=True)   # equal ones are all taken; rounding may swap two
            self.assertLess(((np.asarray(best) != want) & (np.abs(scores - least) > 1e-5)).sum(), 8)
            if blocks:
                self.assertLess((np.asarray(blocks_of) != near).sum(), 64)

    def test_index_loss(self):
        seg = np.zeros((2, 256), np.int32)
        seg[0, 100:], seg[0, 180:], seg[0, 230:] = 1, 2, -1
        lay = M.Layout(self.cfg, seg)
        for ratio in (1, 2):
            mass = np.random.default_rng(3).random((2, 256, 256 // ratio)).astype(np.float32) * lay.visible[ratio]
            lay.focus = np.random.default_rng(4).random((2, 256)).astype(np.float32)

            def run(fast, q, w, keys):
                M.fast = fast
                try:
                    return M.index_kl((q, w, keys), mass[:, ::M.INDEX_EVERY], lay.visible[ratio], lay), 0.0
                finally:
                    M.fast = None
            self.check(lambda *a: run(None, *a), lambda *a: run(self.fast, *a), values(2, 256, 4, 32), values(2, 256, 4),
                       values(2, 256 // ratio, 32))

    def test_experts(self):
        params = {k: np.asarray(v) for k, v in M.init(self.cfg, 1).items() if k.startswith("layers.3.ffn")}
        x, g = 3 * values(200, 128), values(200, 128)

        def run(fast, params, x):
            M.fast = fast
            try:
                y = M.moe(self.cfg, params, "layers.3.", x, 2, M.Mode())[0]
            finally:
                M.fast = None
            return (y * g).sum(), y
        self.check(lambda *a: run(None, *a), lambda *a: run(self.fast, *a), params, x)


class Quantizers(unittest.TestCase):
    def test_a_second_pass_changes_nothing(self):
        for fn in (Q.q8, Q.q4i, Q.q4k, Q.w8, Q.w4, Q.rows8):
            once = np.asarray(fn(values(64, 96)))
            np.testing.assert_array_equal(np.asarray(fn(once)), once)

    def test_e2m1_rounds_ties_to_the_even_code(self):
        given = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, -5.0]
        np.testing.assert_array_equal(np.asarray(Q.e2m1(np.array(given, np.float32))), [0, 1, 1, 2, 2, 4, 4, 6, -4])

    def test_scales_are_powers_of_two_that_keep_the_largest_value(self):
        w = values(32, 64) * 1000
        back = np.asarray(Q.w8(w))
        self.assertLess(np.abs(back - w).max(), np.abs(w).max() / 16)


class Checkpoint(unittest.TestCase):
    def test_an_export_reads_back_as_the_quantized_parameters(self):
        cfg = M.Config(json.load(open(os.path.join(FOLDER, "config.json"))))
        params = M.init(cfg, 3)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.save(folder, cfg, params)
            _, back = checkpoint.load(folder)
        for name, want in M.quantized(params).items():
            np.testing.assert_array_equal(back[name], np.asarray(want), name)


class Generator(unittest.TestCase):
    def test_the_same_seed_gives_the_same_batch(self):
        raw = json.load(open(os.path.join(FOLDER, "config.json")))["text_config"]
        parsed = json.load(open(os.path.join(FOLDER, "tokenizer.json")))
        tok = Tokenizer.from_file(os.path.join(FOLDER, "tokenizer.json"))
        hashes = engram.Hash(raw, engram.token_map(parsed, raw["vocab_size"]))
        make = lambda n: data.Packer(tok, hashes, 512, 2, "s").batch(n)
        for a, b in zip(make(4), make(4)):
            np.testing.assert_array_equal(a, b)
        self.assertFalse(np.array_equal(make(4)[0], make(5)[0]))

    def test_column_work_ends_in_the_answer(self):
        rng = random.Random(2)
        for _ in range(200):
            a, b = rng.randint(0, 999), rng.randint(0, 999)
            for op, want in (("+", a + b), ("-", abs(a - b))):
                steps = [s.split("=")[1] for s in data.work(a, b, op).split(", ")]
                digits = "".join(s[1] for s in reversed(steps))
                self.assertEqual(int(steps[-1][0] + digits), want)


class Scores(unittest.TestCase):
    def test_wanted_calls_parse_and_damaged_ones_do_not(self):
        for i in range(20):
            item = evaluate.tools(random.Random(i))
            text = evaluate.ask_and_want(item)[1]
            self.assertTrue(evaluate.parses(text) and evaluate.right(item, text), text)
            self.assertFalse(evaluate.parses(text[:-30]))
        self.assertFalse(evaluate.parses("Paris."))


if __name__ == "__main__":
    unittest.main()
