"""deepinfer plan as its users see it."""

import csv
import gzip
import json
import subprocess

import served

CPU = ["--requests", "50", "--input", "12000", "--output", "350", "--hit", "0.6", "--hardware", "cpu:2x64c-ddr5,nvme:2"]


def plan(*arguments):
    return subprocess.run([str(served.BINARY), "plan", *arguments], capture_output=True, text=True, timeout=60)


def good(*arguments):
    ended = plan(*arguments)
    assert ended.returncode == 0 and ended.stderr == "", ended
    return ended.stdout


def refused(*arguments):
    ended = plan(*arguments)
    assert ended.returncode == 2 and ended.stdout == "", ended
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


def figures(*arguments):
    return {one["name"]: one for one in json.loads(good(*arguments, "--json"))["figures"]}


def test_published_shows_every_figure_beside_its_source():
    lines = good("--profile", "published").splitlines()
    numbers = {int(line.split()[0]) for line in lines if line[:3].strip().isdigit()}
    assert numbers == set(range(1, 29))
    mean = next(line for line in lines if line.startswith(" 10 "))
    assert "$39.10 per card-hour" in mean and "$38" in mean and "2.9 % high" in mean and "(a)" in mean
    assert sum("agrees" in line for line in lines) >= 25
    assert [line[1] for line in lines if line.startswith("(")] == list("abcdefghijklmnopq")


def test_a_plan_for_cpu_servers_says_what_to_buy():
    text = good(*CPU)
    assert "servers for prefill" in text and "drives of 7.68 TB" in text
    assert "first token after" in text and "placeholders" in text
    numbers = figures(*CPU)
    assert numbers["prefill_cards"]["value"] >= numbers["prefill_needed"]["value"] > numbers["prefill_cards"]["value"] - 1


def test_explain_fills_the_numbers_in():
    text = good(*CPU, "--explain", "miss_tokens")
    assert "input_rate × (1 − hit)" in text and "600,000 tokens/s × (1 − 60 %)" in text and "= 240,000 tokens/s" in text
    assert "docs/performance.md" in good(*CPU, "--explain", "server_compute")  # of the server behind the plan
    assert "no figure 'nothing'" in refused(*CPU, "--explain", "nothing")


def test_sensitivity_names_the_strongest_first():
    lines = good("--profile", "published", "--sensitivity", "payback_low").splitlines()
    assert lines[2].split()[0] == "card_hour"


def test_what_is_written_can_be_read(tmp_path):
    first = good(*CPU, "--set", "chat_days=10 d", "--csv")
    file = tmp_path / "plan.csv"
    file.write_text(first)
    again = good("--hardware", "cpu:2x64c-ddr5,nvme:2", "--inputs", str(file), "--csv")
    rows = [list(csv.reader(text.splitlines())) for text in (first, again)]
    assert len(rows[0]) == len(rows[1]) > 80
    for a, b in zip(rows[0][1:], rows[1][1:]):
        assert a[0] == b[0] and abs(float(a[1]) - float(b[1])) <= 1e-9 * abs(float(a[1])), (a, b)
    (tmp_path / "in.json").write_text('{"requests": "7 requests/s"}')
    assert figures("--inputs", str(tmp_path / "in.json"))["input_rate"]["value"] == 84000


def test_a_trace_gives_the_traffic(tmp_path):
    lines = [{"timestamp": 500 * i, "input_length": 1024, "output_length": 10, "hash_ids": [1, 2 + i]} for i in range(101)]
    file = tmp_path / "trace.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    inputs = {one["name"]: one["value"] for one in json.loads(good("--trace", str(file), "--json"))["inputs"]}
    assert inputs["requests"] == 2.02 and inputs["input"] == 1024
    assert abs(inputs["hit"] - 100 * 512 / (101 * 1024) * 100) < 1e-9
    lines[3]["input_length"] = None
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    assert "line 4: input_length: found null, expected integer" in refused("--trace", str(file))


def test_bad_input_gets_one_line():
    assert "requests (Requests): found -5 requests/s, expected a number above 0" in refused("--requests=-5")
    assert "found 0 requests/s" in refused("--requests", "0")
    assert "found not a number" in refused("--requests", "nan")
    assert "found 120 %, expected 0 % to 100 %" in refused("--hit", "1.2")
    assert "--input: found '12k'" in refused("--input", "12k")
    assert "--input: found 'p50=9,p99=3'" in refused("--input", "p50=9,p99=3")
    assert "found '3', which has no unit" in refused("--set", "chat_days=3")
    assert "found '3 GB' in 'GB'" in refused("--set", "chat_days=3 GB")
    assert "--set: found 'nothing=3'" in refused("--set", "nothing=3")
    assert "found 'cpu:2x64', expected cpu:SOCKETS" in refused("--hardware", "cpu:2x64")
    assert "one answer alone reaches" in refused("--hardware", "cpu:2x64c-ddr5", "--user-speed", "400")
