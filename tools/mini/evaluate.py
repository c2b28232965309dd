"""Scores the mini model on fresh random items, through JAX, a training checkpoint, the deepinfer binary or its HTTP server.

The prompts come from the training generator with seeds that training never uses. An item is right when the answer
contains the wanted text, or when the calls equal the wanted calls. `jax` is teacher-forced: every wanted token has to be
the likeliest one after the wanted tokens before it, which is what greedy decoding needs to give the same text.
`checkpoint` is the same with the trainer's kernels, many items a batch, quantized weights and caches but fp32
activations: a quick look during training.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import urllib.request

import data

SEED = "evaluate"


def last_turn(turns, thinking, options):
    """An item that asks for the last turn of a conversation."""
    return {"turns": turns, "thinking": thinking, "options": options}


def sums(rng):
    thinking = rng.random() < 0.5
    t = data.qa(rng, "sum")
    return last_turn([t if thinking else data.plain(t)], thinking, {})


def facts(rng):
    return last_turn([data.plain(data.qa(rng, "fact"))], rng.random() < 0.5, {})


def tools(rng):
    turns, options = data.tool_doc(rng, 1)
    return last_turn(turns[:1], rng.random() < 0.5, options)


def results(rng):
    turns, options = data.tool_doc(rng, 1)
    return last_turn(turns, rng.random() < 0.5, options)


def jsons(rng):
    turns, options = data.json_doc(rng)
    return last_turn(turns, rng.random() < 0.5, options)


def memory(rng):
    return last_turn([data.plain(t) for t in data.memory_turns(rng)], False, {})


def words(rng):
    return last_turn([data.plain(data.qa(rng, "words"))], False, {})


def talk(rng):
    return last_turn([data.plain(data.qa(rng, rng.choice(["greet", "zh", "unknown"])))], False, {})


def recall(budget):
    def make(rng):
        turns, options = data.recall_doc(rng, budget, False, 1)
        return last_turn(turns, False, options)
    return make


KINDS = {"sums": (sums, 200), "facts": (facts, 200), "tool calls": (tools, 100), "tool answers": (results, 60),
         "json": (jsons, 60), "memory": (memory, 60), "words": (words, 60), "talk": (talk, 60),
         "recall 200": (recall(200), 40), "recall 1k": (recall(900), 20), "recall 4k": (recall(3800), 10)}


def ask_and_want(item):
    """Prompt segments and the text that should follow."""
    segments = [t for t, _ in data.render(item["turns"], item["thinking"], **item["options"])]
    return segments[:-1], segments[-1]


def right(item, text):
    """Judges generated text (with or without the thought and the end token)."""
    text = text.split("</think>")[-1].replace(data.EOS, "")
    turn = item["turns"][-1]
    if "calls" in turn:
        got = [(n, dict((k, v) for k, _, v in re.findall(
            r'<｜DSML｜ parameter name="([^"]*)" string="(true|false)">(.*?)</｜DSML｜ parameter>', body, re.S)))
            for n, body in re.findall(r'<｜DSML｜ invoke name="([^"]*)">\n(.*?)</｜DSML｜ invoke>', text, re.S)]
        return got == [(n, {k: str(v) for k, v in a.items()}) for n, a in turn["calls"]]
    if "schema" in item["options"]:
        try:
            return json.loads(text) == json.loads(turn["answer"])
        except ValueError:
            return False
    numbers = re.findall(r"-?\d+", turn["answer"])
    if turn.get("kind") == "sum":
        return re.findall(r"-?\d+", text)[-1:] == numbers[-1:]
    return turn["answer"].strip(" .") in text


def parses(text):
    """Whether generated text ends in one well-formed block of tool calls."""
    parameter = f'<{data.DSML} parameter name="[^"]*" string="(true|false)">.*?</{data.DSML} parameter>\n'
    invoke = f'<{data.DSML} invoke name="[^"]*">\n({parameter})*\n?</{data.DSML} invoke>\n'
    return re.fullmatch(f"(.*</think>)?[^<]*\n\n<{data.DSML} calls>\n({invoke})+</{data.DSML} calls>", text.replace(data.EOS, ""),
                        re.S) is not None


class Jax:
    """Teacher-forced scores with the exported files and every quantizer."""

    def __init__(self, a):
        import numpy as np
        from tokenizers import Tokenizer

        from golden import Forward
        self.np, self.forward = np, Forward(a.model)
        self.tok = Tokenizer.from_file(f"{a.model}/tokenizer.json")

    def score(self, item):
        ask, want = ask_and_want(item)
        ids = [i for s in ask for i in self.tok.encode(s, add_special_tokens=False).ids]
        tail = self.tok.encode(want, add_special_tokens=False).ids
        lg = self.np.asarray(self.forward(ids + tail)[0])
        return bool((lg[len(ids) - 1:len(ids) + len(tail) - 1].argmax(-1) == tail).all())


class Checkpoint:
    """Teacher-forced scores of a file that train.py wrote."""

    def __init__(self, a):
        import pickle

        import jax
        import numpy as np

        import train   # switches the kernels on
        M = train.M
        self.np = np
        self.cfg, self.hashes, self.packer = train.load_data(a.model, {"T": 1024, "B": 1}, "")
        jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/deepinfer-mini/xla"))
        state = pickle.load(open(a.checkpoint, "rb"))
        print(f"step {state['step']}, {state['tokens'] / 1e6:.2f} Mtok", flush=True)
        params = jax.jit(M.quantized)(state["mean" if a.mean else "params"])

        def best(params, ids, seg, rows):
            mode = M.Mode(caches=True, restrict=True)
            return M.logits(params, M.backbone(self.cfg, params, ids, seg, rows, mode)[0]).argmax(-1)
        best = jax.jit(best)
        self.best = lambda ids, seg, start: np.asarray(best(params, ids, seg, self.hashes.rows(ids, start))).reshape(ids.shape)

    def score_all(self, items):
        np, done = self.np, []
        waiting = []
        for item in items:
            ask, want = ask_and_want(item)
            ids, tail = self.packer.encode([(t, 0) for t in ask])[0], self.packer.encode([(want, 0)])[0]
            waiting.append((item, ids + tail, len(ids)))
        T = next(t for t in (1024, 4096, 8192) if t >= max(len(row) for _, row, _ in waiting))
        B = max(1, 2048 // T)
        while waiting:
            ids, seg = np.full((B, T), 2, np.int32), np.full((B, T), -1, np.int32)
            start, placed = np.zeros_like(ids), []
            for b in range(B):
                at = 0
                while waiting and at + len(waiting[0][1]) <= T:
                    item, row, n = waiting.pop(0)
                    end = at + len(row) + len(row) % 2
                    ids[b, at:at + len(row)], seg[b, at:end], start[b, at:end] = row, at, at
                    placed.append((item, row, n, b, at))
                    at = end
            best = self.best(ids, seg, start)
            done += [(item, bool((best[b, at + n - 1:at + len(row) - 1] == row[n:]).all())) for item, row, n, b, at in placed]
        return done


class Binary:
    """`deepinfer generate --ids`, one process an item."""

    def __init__(self, a):
        from tokenizers import Tokenizer
        self.a, self.tok = a, Tokenizer.from_file(f"{a.model}/tokenizer.json")
        self.parsed = 0

    def score(self, item):
        ids = [i for s in ask_and_want(item)[0] for i in self.tok.encode(s, add_special_tokens=False).ids]
        out = subprocess.run([self.a.binary, "generate", "--model", self.a.model, "--ids", ",".join(map(str, ids)),
                              "--json", "--temperature", "0", "--max-tokens", "300"], capture_output=True, text=True)
        if out.returncode:
            raise RuntimeError(out.stderr[-2000:])
        reply = json.loads(out.stdout)
        text = self.tok.decode(reply["ids"], skip_special_tokens=False)
        self.parsed += parses(text)
        return right(item, text)


class Server:
    """/v1/chat/completions of a running `deepinfer serve`."""

    def __init__(self, a):
        self.url = f"http://127.0.0.1:{a.port}/v1/chat/completions"

    def score(self, item):
        o, messages, calls = item["options"], [], []
        if o.get("system"):
            messages.append({"role": "system", "content": o["system"]})
        for n, t in enumerate(item["turns"]):
            if "user" in t:
                messages.append({"role": "user", "content": t["user"]})
            else:
                messages += [{"role": "tool", "tool_call_id": c["id"], "content": r} for c, r in zip(calls, t["results"])]
            if n + 1 < len(item["turns"]):
                calls = [{"id": f"call_{n}_{i}", "type": "function",
                          "function": {"name": f, "arguments": json.dumps(v)}} for i, (f, v) in enumerate(t.get("calls", []))]
                reply = {"role": "assistant", "content": t.get("answer", "")}
                if item["thinking"] and "thought" in t:
                    reply["reasoning_content"] = t["thought"]
                messages.append(reply | ({"tool_calls": calls} if calls else {}))
        body = {"model": "deepinfer-mini", "messages": messages, "temperature": 0, "max_tokens": 300,
                "thinking": {"type": "enabled" if item["thinking"] else "disabled"}}
        if o.get("tools"):
            body["tools"] = [{"type": "function", "function": t} for t in o["tools"]]
        if o.get("schema") == {"type": "json_object"}:
            body["response_format"] = o["schema"]
        elif o.get("schema"):
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": o["schema"]}}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        m = json.loads(urllib.request.urlopen(request, timeout=120).read())["choices"][0]["message"]
        text = m.get("content") or ""
        if m.get("tool_calls"):
            text += data.calls_text([(c["function"]["name"], json.loads(c["function"]["arguments"]))
                                     for c in m["tool_calls"]])
        return right(item, text)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--backend", choices=["jax", "checkpoint", "binary", "server"], default="jax")
    ap.add_argument("--model", default="models/mini")
    ap.add_argument("--binary", default="build/release/deepinfer")
    ap.add_argument("--checkpoint", help="pickle written by train.py")
    ap.add_argument("--mean", action="store_true", help="score the checkpoint's running mean of the weights")
    ap.add_argument("--port", type=int, default=8000)
    ap.add_argument("--kinds", help="comma-separated subset of: " + ", ".join(KINDS))
    ap.add_argument("--share", type=float, default=1.0, help="share of the items of every kind")
    ap.add_argument("--show", type=int, default=0, help="print so many wrong questions of every kind")
    a = ap.parse_args()
    backend = {"jax": Jax, "checkpoint": Checkpoint, "binary": Binary, "server": Server}[a.backend](a)
    for kind in a.kinds.split(",") if a.kinds else KINDS:
        make, count = KINDS[kind]
        count, good, shown = max(1, round(count * a.share)), 0, 0
        items = [make(random.Random(f"{SEED}/{kind}/{i}")) for i in range(count)]
        scores = backend.score_all(items) if hasattr(backend, "score_all") else ((item, backend.score(item)) for item in items)
        for item, ok in scores:
            good += ok
            if not ok and shown < a.show:
                shown += 1
                turn = item["turns"][-1]
                print("  wrong:", str(turn.get("user", turn.get("results")))[-100:], "| wanted:", turn.get("answer",
                      turn.get("calls")))
        print(f"{kind}: {good}/{count} = {100 * good / count:.1f} %", flush=True)
        if isinstance(backend, Binary) and kind == "tool calls":
            print(f"{kind} that parse: {backend.parsed}/{count}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
