"""Unit tests of the trainer's tools: `python -m unittest discover -s tools/mini -p test_mini.py`."""
import json
import os
import random
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np
from tokenizers import Tokenizer

import checkpoint
import data
import engram
import model as M
import quant as Q

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "mini")


def values(*shape):
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


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


if __name__ == "__main__":
    unittest.main()
