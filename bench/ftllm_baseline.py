"""What PyPI ftllm 1.9.0 needs on the checkpoint of model_bench: prints one line of JSON.

usage: ftllm_baseline.py MODEL PROMPT_TOKENS NEW_TOKENS      with a Python that has ftllm:
  python3 -m venv V; V/bin/pip install --no-deps ftllm==1.9.0; V/bin/pip install tokenizers transformers numpy jinja2 pillow
"""
import json
import re
import resource
import subprocess
import sys


def main():
    model, prompt, new = sys.argv[1:4]
    command = [sys.executable, "-m", "ftllm.benchmark", "--path", model, "--device", "cpu", "-t", "1", "--input_tokens", prompt,
               "--output_tokens", new, "--warmup", "0"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout
    prefill = float(re.search(r"Prefill +([\d.]+) tokens/s", text)[1])
    decode = 1000 / float(re.search(r"TPOP avg +([\d.]+) ms", text)[1])
    if decode > prefill:  # one token a step reads at least what a token of a prompt does: it printed a rounded zero
        sys.exit(f"refused: decode {decode:.2f} tokens/s, faster than prefill with {prefill:.2f}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(json.dumps({"prefill_tokens_per_second": prefill, "decode_tokens_per_second": decode, "peak_rss_bytes": peak}))


main()
