"""`serve --kv-dir`: what was asked before a restart is found after it."""

import http.client
import json
import pathlib
import random
import shutil
import socket
import subprocess
import time

import pytest
import served

NEW_TOKENS = 4
# Bytes of a block of 128 tokens and rows of a full-size prompt: docs/spec/model.md 12.1.
FULL_BLOCK_BYTES = 113_920


def prompt_of(words):
    pick = random.Random(5)
    return " ".join(pick.choice(["alpha", "house", "river", "stone", "green", "count", "paper"]) for _ in range(words))


def ask(server, text, **fields):
    """Seconds to the first token, and the usage."""
    begin = time.monotonic()
    first = None
    usage = None
    stream = server.open_stream(messages=[{"role": "user", "content": text}], max_tokens=NEW_TOKENS, **fields)
    for chunk in served.read_chunks(stream):
        deltas = [choice["delta"] for choice in chunk["choices"]]
        if first is None and any(d.get("content") or d.get("reasoning_content") for d in deltas):
            first = time.monotonic() - begin
        usage = chunk.get("usage") or usage
    return first, usage


def status(server):
    text = server.request("GET", "/status")[1].decode()
    return {line.split()[0]: line.split()[1] for line in text.splitlines() if len(line.split()) == 2}


def test_t01_a_long_prompt_is_found_after_a_restart(tmp_path, capsys):
    options = ("--kv-dir", str(tmp_path / "kv"), "--kv-size", "256M")
    text = prompt_of(2490)  # 4,000 tokens and a few
    server = served.Server(*options)
    cold_s, usage = ask(server, text)
    prompt_tokens = usage["prompt_tokens"]
    assert 3_990 <= prompt_tokens <= 4_200
    assert usage["prompt_cache_hit_tokens"] == 0
    cold_status = status(server)
    assert server.stop() == 0

    server = served.Server(*options)
    warm_s, usage = ask(server, text)
    assert usage["prompt_tokens"] == prompt_tokens
    assert usage["prompt_cache_hit_tokens"] == (prompt_tokens - 1) // 128 * 128 >= 3_900
    warm_status = status(server)
    assert int(warm_status["store_hit_tokens"]) == usage["prompt_cache_hit_tokens"]
    # Memory has the state of its end, too.
    assert ask(server, text)[1]["prompt_cache_hit_tokens"] == prompt_tokens - 1
    assert server.stop() == 0

    row_s = cold_s / prompt_tokens
    replayed = int(warm_status["replayed_rows"])
    load_s = int(warm_status["store_load_ns"]) / 1e9
    rows_100k = replayed + 140
    with capsys.disabled():
        print(
            f"\n{prompt_tokens} tokens: first token after {cold_s:.2f} s, after a restart {warm_s:.2f} s "
            f"({100 * (1 - warm_s / cold_s):.0f} % less); {int(cold_status['prefill_rows'])} rows, then "
            f"{int(warm_status['prefill_rows'])} of which {replayed} replayed; load {load_s * 1e3:.1f} ms\n"
            f"100,000 tokens would take {100_000 * row_s:.0f} s cold; after a restart {rows_100k} rows "
            f"({rows_100k * row_s:.2f} s here) and {100_000 // 128 * FULL_BLOCK_BYTES / 1e6:.0f} MB of full-size blocks "
            f"({100_000 // 128 * FULL_BLOCK_BYTES / 1e9:.2f} s at 1 GB/s): "
            f"{100 * (1 - (rows_100k * row_s + 100_000 // 128 * FULL_BLOCK_BYTES / 1e9) / (100_000 * row_s)):.1f} % less"
        )


@pytest.fixture(params=["directory", "redis"])
def tier(request, tmp_path):
    """The name of a tier and its address."""
    if request.param == "directory":
        yield request.param, f"file://{tmp_path}/shared"
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # The package redis-tools has the server under another name and, unlike redis-server, starts no service.
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", tmp_path]
    redis = subprocess.Popen(command, executable="/usr/bin/redis-check-rdb", stdout=subprocess.DEVNULL)
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield request.param, f"redis://127.0.0.1:{port}"
    redis.terminate()
    redis.wait()


def test_two_machines_share_a_tier(tier, tmp_path):
    name, address = tier
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    remote = ("--kv-key-file", str(key), "--kv-remote", address, "--kv-size", "256M")
    text = prompt_of(600)
    first = served.Server("--kv-dir", str(tmp_path / "first"), *remote)
    assert ask(first, text)[1]["prompt_cache_hit_tokens"] == 0
    assert first.stop() == 0
    second = served.Server("--kv-dir", str(tmp_path / "second"), *remote)
    usage = ask(second, text)[1]
    assert usage["prompt_cache_hit_tokens"] == (usage["prompt_tokens"] - 1) // 128 * 128
    metrics = second.request("GET", "/metrics")[1].decode()
    assert f"deepinfer_kv_tier_hits_total {usage['prompt_cache_hit_tokens'] // 128}\n" in metrics
    assert f"kv_tier {name}: ok" in second.request("GET", "/status")[1].decode()
    assert second.stop() == 0


def test_a_remote_tier_that_cannot_be_had_is_named(tmp_path):
    def refused(*options):
        command = [served.BINARY, "serve", "--model", served.MODEL_DIRECTORY, "--port", "0", *options]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ended.returncode != 0
        return ended.stderr

    directory = ("--kv-dir", str(tmp_path / "kv"), "--kv-size", "256M")
    assert "nfs://x" in refused(*directory, "--kv-remote", "nfs://x")
    assert "127.0.0.1:1 does not answer" in refused(*directory, "--kv-required", "--kv-remote", "redis://127.0.0.1:1")
    secret = refused(*directory, "--kv-remote", "redis://:s3cret@127.0.0.1:1")
    assert "REDIS_PASSWORD" in secret and "s3cret" not in secret
    assert "--kv-dir" in refused("--kv-remote", "redis://127.0.0.1")
    assert "--kv-encrypt" in refused(*directory, "--kv-encrypt", "--kv-remote", "redis://127.0.0.1")


def test_a_second_server_on_the_same_directory_serves_without_it(tmp_path):
    options = ("--kv-dir", str(tmp_path / "kv"), "--kv-size", "256M")
    first = served.Server(*options)
    second = served.Server(*options)
    assert second.chat()["choices"]
    assert second.stop() == 0
    assert "serving without it" in second.process.stderr.read()
    third = served.Server(*options, "--admin-port", "0")
    assert "kv_store                           off" in third.request("GET", "/status")[1].decode()
    assert "deepinfer_kv_store_up 0" in third.request("GET", "/metrics")[1].decode()
    assert third.stop() == 0
    assert first.chat()["choices"]
    assert first.stop() == 0


def test_a_salt_is_a_tenant_of_its_own(tmp_path):
    server = served.Server("--kv-dir", str(tmp_path / "kv"), "--kv-size", "256M")
    text = prompt_of(300)
    assert ask(server, text, user_id="a")[1]["prompt_cache_hit_tokens"] == 0
    assert ask(server, text, user_id="b")[1]["prompt_cache_hit_tokens"] == 0
    assert ask(server, text)[1]["prompt_cache_hit_tokens"] == 0
    assert ask(server, text, user_id="a")[1]["prompt_cache_hit_tokens"] > 0
    assert server.stop() == 0


@pytest.mark.parametrize("changed", ["nothing", "weights", "config", "tokenizer"])
def test_blocks_of_another_checkpoint_are_not_found(changed, tmp_path, monkeypatch):
    model = tmp_path / "model"
    shutil.copytree(served.MODEL_DIRECTORY, model)
    monkeypatch.setattr(served, "MODEL_DIRECTORY", model)
    options = ("--kv-dir", str(tmp_path / "kv"), "--kv-size", "256M", "--context-mode", "bounded")
    text = prompt_of(300)
    server = served.Server(*options)
    assert ask(server, text)[1]["prompt_cache_hit_tokens"] == 0
    assert server.stop() == 0
    if changed == "weights":
        shard = sorted(model.glob("*.safetensors"))[-1]
        content = bytearray(shard.read_bytes())
        content[-5] ^= 1
        shard.write_bytes(content)
    elif changed == "config":
        (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    elif changed == "tokenizer":
        (model / "tokenizer.json").write_text((model / "tokenizer.json").read_text() + "\n")
    server = served.Server(*options)
    assert (ask(server, text)[1]["prompt_cache_hit_tokens"] > 0) == (changed == "nothing")
    assert server.stop() == 0


def test_a_damaged_memory_of_digests_is_not_believed(tmp_path):
    options = ("--kv-dir", str(tmp_path / "kv"), "--kv-size", "256M", "--context-mode", "bounded")
    text = prompt_of(300)
    server = served.Server(*options)
    ask(server, text)
    assert server.stop() == 0
    remembered = tmp_path / "kv" / "weights.digests"
    content = remembered.read_text()
    remembered.write_text(("0" if content[0] != "0" else "1") + content[1:])
    server = served.Server(*options)
    assert ask(server, text)[1]["prompt_cache_hit_tokens"] > 0
    assert server.stop() == 0
    assert "weights.digests" in server.process.stderr.read()


def damaged_key(tmp_path):
    (tmp_path / "kv").mkdir()
    (tmp_path / "kv" / "master.key").write_bytes(b"")
    (tmp_path / "kv" / "blocks").mkdir()
    (tmp_path / "kv" / "blocks" / "drive.meta").write_bytes(b"x" * 512)
    return ("--kv-dir", str(tmp_path / "kv")), "expected a key of 32"


def missing_key_file(tmp_path):
    return ("--kv-dir", str(tmp_path / "kv"), "--kv-key-file", str(tmp_path / "mistyped")), "mistyped"


def place_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    return ("--kv-dir", str(tmp_path / "file" / "kv")), "file/kv"


def tier_that_is_down(tmp_path):
    return ("--kv-dir", str(tmp_path / "kv"), "--kv-remote", "redis://127.0.0.1:1"), "127.0.0.1:1 does not answer"


@pytest.mark.parametrize("fault", [damaged_key, missing_key_file, place_that_cannot_be_made, tier_that_is_down])
def test_what_is_wrong_with_the_store_costs_the_store_not_the_service(fault, tmp_path):
    options, word = fault(tmp_path)
    server = served.Server(*options, "--kv-size", "256M")
    assert server.chat()["choices"]
    assert server.stop() == 0
    assert word in server.process.stderr.read()
    command = [served.BINARY, "serve", "--model", served.MODEL_DIRECTORY, "--port", "0", "--kv-size", "256M", "--kv-required"]
    refused = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0 and "--kv-required" in refused.stderr
    assert not (tmp_path / "mistyped").exists()


def test_no_directory_is_the_one_that_must_not_be_lost(tmp_path):
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    text = prompt_of(600)

    def hit(*directories):
        server = served.Server(*[word for one in directories for word in ("--kv-dir", one)], "--kv-size", "512M", "--context-mode", "bounded")
        found = ask(server, text)[1]["prompt_cache_hit_tokens"]
        assert server.stop() == 0
        return found

    assert hit(first, second) == 0
    holder = first if records_in(first) else second
    assert hit(second, first) > 0
    assert hit(holder, str(tmp_path / "new")) > 0


def records_in(directory):
    done = subprocess.run([served.BINARY, "kv", "stat", directory, "--json"], capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)["records"]


def test_another_api_key_is_another_tenant(tmp_path):
    options = ("--kv-dir", str(tmp_path / "kv"), "--kv-size", "256M")
    text = prompt_of(600)  # so long that its windows are stored at a border

    def hit(key):
        server = served.Server(*options, "--api-key", key)
        connection = server.connect()
        connection.request(
            "POST",
            "/v1/chat/completions",
            body=json.dumps(served.chat_body(messages=[{"role": "user", "content": text}], max_tokens=1)),
            headers={"Authorization": f"Bearer {key}"},
        )
        answer = json.loads(connection.getresponse().read())
        assert server.stop() == 0
        return answer["usage"]["prompt_cache_hit_tokens"]

    assert hit("first") == 0
    assert hit("second") == 0
    assert hit("first") >= 384


def test_kv_check_names_damage_and_the_server_answers_all_the_same(tmp_path):
    directory = tmp_path / "kv"
    options = ("--kv-dir", str(directory), "--kv-size", "256M")
    text = prompt_of(300)
    server = served.Server(*options)
    ask(server, text)
    assert server.stop() == 0

    def check():
        return subprocess.run([served.BINARY, "kv", "check", directory], capture_output=True, text=True, timeout=60)

    sound = check()
    assert sound.returncode == 0, sound.stdout + sound.stderr
    segment = max((directory / "blocks").glob("*.seg"), key=lambda path: path.stat().st_blocks)
    slot = next(
        at
        for at in range(4096, segment.stat().st_size, 4096)
        if read_at(segment, at, 8)[:7] == b"DIKVREC"
    )
    with open(segment, "r+b") as file:
        file.seek(slot + 2000)
        byte = file.read(1)
        file.seek(slot + 2000)
        file.write(bytes([byte[0] ^ 1]))
    damaged = check()
    assert damaged.returncode == 1
    assert f"{segment.name}: byte {slot}: " in damaged.stdout
    server = served.Server(*options)
    _, usage = ask(server, text)
    assert usage["prompt_cache_hit_tokens"] == 0  # the first block is the damaged one
    assert int(status(server)["misses_absent"]) == 1  # the recovery of the open segment left it out
    assert server.stop() == 0


def read_at(path: pathlib.Path, at, count):
    with open(path, "rb") as file:
        file.seek(at)
        return file.read(count)




class Admin:
    """The admin port of a server that was started with `--admin-port 0`."""

    def __init__(self, server, line):
        self.port = int(line.rsplit(":", 1)[1])

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=json.dumps(body) if body is not None else None, headers=headers or {})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


def test_the_admin_port_counts_pins_bounds_and_deletes(tmp_path):
    directory = tmp_path / "kv"

    class AdminServer(served.Server):
        def _read_port(self):
            self.admin = Admin(self, self.process.stdout.readline().strip())
            return super()._read_port()

    server = AdminServer("--kv-dir", str(directory), "--kv-size", "256M", "--admin-port", "0")
    admin = server.admin
    text = prompt_of(300)
    ask(server, text)
    deadline = time.monotonic() + 30
    while admin.request("GET", "/kv/stats")[1]["persisted"] < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    code, stats = admin.request("GET", "/kv/stats")
    assert code == 200 and stats["records"] >= 3 and stats["drives"][0]["state"] == "ok"
    assert stats["misses"]["corrupt"] == 0

    code, domains = admin.request("GET", "/kv/domains")
    assert code == 200 and len(domains) == 1 and domains[0]["live"] and domains[0]["quota_bytes"] is None
    quota = {"bytes": 50_000_000, "class": "agent", "ttl_hours": 100}
    assert admin.request("PUT", "/kv/quota/default", quota)[0] == 200
    (domain,) = admin.request("GET", "/kv/domains")[1]
    assert (domain["quota_bytes"], domain["class"], domain["ttl_hours"]) == (50_000_000, "agent", 100)
    assert admin.request("PUT", "/kv/quota/default", {**quota, "bytes": 10**15})[0] == 409
    assert admin.request("PUT", "/kv/quota/default", {"bytes": -1})[0] == 400
    assert admin.request("PUT", "/kv/quota/nobody", quota)[0] == 404

    dump = subprocess.run([served.BINARY, "kv", "dump", directory], capture_output=True, text=True, timeout=60)
    records = sorted((json.loads(line) for line in dump.stdout.splitlines()), key=lambda one: one["block_index"])
    pin = {"domain": domain["domain"], "keys": [one["key"] for one in records], "ttl_s": 60}
    assert admin.request("POST", "/kv/pin", pin) == (200, {"pinned_blocks": len(records)})
    assert admin.request("POST", "/kv/pin", {**pin, "keys": ["zz"]})[0] == 400
    assert admin.request("POST", "/kv/prefetch", {"tenant": "default", "prompt_ids": [5, 6, 7]})[0] == 202
    assert admin.request("POST", "/kv/prefetch", {"prompt_ids": []})[0] == 400
    assert admin.request("POST", "/kv/verify?records=100") == (200, {"damaged": 0})
    assert admin.request("GET", "/kv/nothing")[0] == 404
    assert admin.request("GET", "/kv/stats", headers={"Origin": "https://elsewhere.example"})[0] == 403

    metrics = server.request("GET", "/metrics")[1].decode()
    assert 'deepinfer_kv_drive_up{drive="0"} 1' in metrics
    assert 'deepinfer_kv_misses_total{reason="corrupt"} 0' in metrics
    assert "deepinfer_engine_store_written" in metrics
    assert "kv_records" in status(server)

    assert admin.request("DELETE", "/kv/domain/default")[0] == 200
    assert admin.request("DELETE", "/kv/domain/default")[0] == 404
    assert ask(server, text)[1]["prompt_cache_hit_tokens"] == 0
    assert server.stop() == 0


def test_an_admin_port_without_a_store_is_refused():
    done = subprocess.run(
        [served.BINARY, "serve", "--model", served.MODEL_DIRECTORY, "--port", "0", "--admin-port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0 and "no KV store" in done.stderr
