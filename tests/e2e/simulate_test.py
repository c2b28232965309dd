"""deepinfer simulate as its users see it."""

import json
import subprocess

import pytest

import served


def simulate(*arguments):
    return subprocess.run([str(served.BINARY), "simulate", *arguments], capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Twenty chats of five turns each, one turn every ten seconds."""
    lines = []
    for turn in range(5):
        for chat in range(20):
            ids = [1000 * chat + block for block in range(8 + 4 * turn)]
            lines.append({"timestamp": 10000 * turn + 400 * chat, "input_length": 512 * len(ids), "output_length": 50, "hash_ids": ids})
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return str(path)


def results(*arguments):
    ended = simulate(*arguments, "--json")
    assert ended.returncode == 0, ended
    return {one["policy"]: one for one in map(json.loads, ended.stdout.splitlines())}


def test_all_policies_finish_and_a_shared_store_finds_most(trace):
    found = results("--trace", trace, "--workers", "4", "--prefill-rate", "6000", "--policy", "all")
    assert len(found) == 11
    assert all(one["finished"] == 100 for one in found.values())
    best = max(one["hit"] for one in found.values())
    assert found["least-queue + shared store"]["hit"] >= best - 0.05
    assert found["least-queue + shared store"]["store_hit"] > 0.2
    assert found["cost-2"]["hit"] > found["random"]["hit"] + 0.1
    assert found["cost-2"]["ttft_s"]["p50"] <= found["random"]["ttft_s"]["p50"]


def test_the_same_seed_gives_the_same_results(trace):
    arguments = ["--trace", trace, "--workers", "3", "--policy", "random", "--hardware", "cpu:2x64c-ddr5,nvme:2", "--json"]
    assert simulate(*arguments).stdout == simulate(*arguments).stdout != simulate(*arguments, "--seed", "2").stdout


def test_the_table_and_the_smallest_cluster(trace):
    table = simulate("--trace", trace, "--workers", "2", "--prefill-rate", "6000").stdout
    assert "100 requests" in table and "ttft p50" in table and "adaptive" in table
    found = results("--trace", trace, "--prefill-rate", "6000", "--slo", "ttft_p90=3", "--most-workers", "32")
    (name,) = found
    assert name.startswith("adaptive: ") and 1 < found[name]["workers"] < 32
    assert found[name]["ttft_s"]["p90"] <= 3
    assert "not met with 2 workers" in simulate("--trace", trace, "--prefill-rate", "100", "--slo", "ttft_p50=0.1", "--most-workers", "2").stdout


def test_sessions_are_drawn_without_a_trace():
    found = results("--hours", "0.2", "--sessions", "0.05", "--workers", "2")
    assert found["adaptive"]["finished"] > 50 and found["adaptive"]["hit"] > 0.3


def test_step_times_can_be_measured_ones(trace, tmp_path):
    file = tmp_path / "times.json"
    file.write_text('{"decode": [[1, 0.01], [16, 0.02]], "prefill_row_seconds": 0.0001}')
    found = results("--trace", trace, "--workers", "2", "--measured", str(file))
    assert 0.005 < found["adaptive"]["tbt_s"]["p50"] < 0.05
    file.write_text('{"decode": []}')
    assert "decode: found no pair" in simulate("--trace", trace, "--measured", str(file)).stderr


@pytest.mark.parametrize(
    "arguments, part",
    [
        (["--policy", "fastest"], "--policy: found 'fastest', expected random, least-queue"),
        (["--workers", "0"], "workers: found 0"),
        (["--slo", "ttft=2"], "--slo: found 'ttft=2'"),
        (["--slo", "ttft_p90=x"], "--slo: found 'ttft_p90=x'"),
        (["--kv-blocks", "5"], "KV blocks, found 5 a worker"),
        (["--scale", "0"], "--scale: found 0"),
        (["--hardware", "nothing"], "hardware: found 'nothing'"),
        (["--prefill-rate", "-1"], "--prefill-rate: found -1"),
        (["--max-running", "0"], "max_running: found 0"),
    ],
)
def test_bad_input_gets_one_line(trace, arguments, part):
    ended = simulate("--trace", trace, *arguments)
    assert ended.returncode == 2 and part in ended.stderr and ended.stderr.count("\n") == 1, ended


def test_a_bad_trace_is_named(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text('{"timestamp": 0, "input_length": 5, "output_length": 1}\n{"timestamp": 0, "input_length": 5}\n')
    assert "line 2: output_length" in simulate("--trace", str(file)).stderr
    assert simulate("--trace", str(tmp_path / "none")).returncode == 2
