"""deepinfer verify on operations that were made with other seeds, by another reference."""

import json
import pathlib
import subprocess

import pytest
import reference_ops

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED = 7_000_001
SMALL = ("rmsnorm", "rope", "router", "indexer", "sampling", "quant")


def verify(directory):
    ended = subprocess.run([ROOT / "build/release/deepinfer", "verify", "--model", ROOT / "models/mini", "--golden",
                            directory, "--json", "--threads", "2"], capture_output=True, text=True, timeout=1200)
    assert ended.stdout, ended.stderr
    report = json.loads(ended.stdout)
    return report, [check for check in report["checks"] if check["outcome"] != "ok"]


@pytest.mark.slow
def test_all_operations_with_seeds_of_their_own(tmp_path):
    reference_ops.write_ops(tmp_path, SEED)
    report, others = verify(tmp_path)
    assert others == []
    checked = {check["name"].split(" ")[0] for check in report["checks"]}
    assert checked == {"ops/" + name for name in reference_ops.OPS}


def test_the_seeds_of_the_manifest_are_the_ones_that_are_used(tmp_path):
    reference_ops.write_ops(tmp_path, SEED, SMALL)
    assert verify(tmp_path)[1] == []
    path = tmp_path / "ops/manifest.json"
    manifest = json.loads(path.read_text())
    for name in SMALL[:-1]:  # the quantizers' inputs are stored
        changed = json.loads(json.dumps(manifest))
        number = SEED + 100 * list(reference_ops.OPS).index(name)
        inputs = changed[name]["inputs"]
        seed = next(str(number + i) for i in range(8) if str(number + i) in inputs)
        changed[name]["inputs"] = inputs.replace(seed, "4242")
        path.write_text(json.dumps({name: changed[name]}))
        assert verify(tmp_path)[1], f"{name}: another seed for the same outputs passed"


def test_inputs_that_can_not_be_read_are_named(tmp_path):
    reference_ops.write_ops(tmp_path, SEED, ("sampling",))
    path = tmp_path / "ops/manifest.json"
    path.write_text(path.read_text().replace("f32(seed", "f32(sown"))
    failed = verify(tmp_path)[1]
    assert len(failed) == 1 and "logits" in failed[0]["note"]
