"""schemathesis over /openapi.json: no request, right or wrong, gets a 5xx or a status that the document does not name."""

import json
import subprocess
import sys

import pytest

import served

TIMEOUT_S = 900
OPTIONS = [
    "--checks=not_a_server_error,status_code_conformance,content_type_conformance",
    "--phases=examples,coverage,fuzzing",
    "--max-examples=25",
    "--generation-deterministic",
    "--continue-on-failure",
    "--no-shrink",
    "--request-timeout=30",
    "--warnings=off",
    "--no-color",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Every prompt is answered at once: it is the paths, the requests and the statuses that are looked at."""
    server = served.ScriptedServer([{"reply": "</think>ok", "repeat": True}], tmp_path_factory.mktemp("openapi"))
    yield server
    assert server.stop() == 0


def test_every_path_of_the_document_is_served(server):
    status, document = server.request("GET", "/openapi.json")
    assert status == 200
    assert document["openapi"].startswith("3.")
    for path, operations in document["paths"].items():
        for method in operations:
            status, answer = server.request(method.upper(), path.replace("{id}", "none"))
            named_in_the_error = "none" in json.dumps(answer) if isinstance(answer, dict) else True
            assert status != 405, (method, path)
            assert status != 404 or named_in_the_error, (method, path, answer)


def test_no_server_error_and_no_undocumented_status(server, tmp_path):
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    finished = subprocess.run(
        [*command, "run", server.url + "/openapi.json", *OPTIONS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-2000:]
    assert server.process.poll() is None
