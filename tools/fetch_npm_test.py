"""tools/fetch_npm.cmake against a registry of this test: what ./run setup does on a machine without npm."""

import base64
import functools
import hashlib
import http.server
import io
import pathlib
import subprocess
import tarfile
import threading

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parent / "fetch_npm.cmake"


def archive(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


ARCHIVE = archive({"package.json": '{"name": "thing"}', "dist/thing.js": "export {};\n"})


@pytest.fixture
def registry(tmp_path):
    folder = tmp_path / "registry"
    for path in ("thing/-/thing-1.2.3.tgz", "@scope/thing/-/thing-1.2.3.tgz"):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(ARCHIVE)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def fetch(registry, tree, folder="node_modules/thing", data=ARCHIVE, version="1.2.3"):
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    return subprocess.run(
        ["cmake", f"-DFOLDER={folder}", f"-DVERSION={version}", f"-DINTEGRITY={integrity}", f"-DTREE={tree}", "-P", SCRIPT],
        env={"PATH": "/usr/bin:/bin", "npm_config_registry": registry},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("folder", ["node_modules/thing", "node_modules/@scope/thing"])
def test_a_package_is_unpacked_and_nothing_else_is_left(registry, tmp_path, folder):
    (tmp_path / "tree" / folder).mkdir(parents=True)
    (tmp_path / "tree" / folder / "old.js").write_text("old")
    ended = fetch(registry, tmp_path / "tree", folder)
    assert ended.returncode == 0, ended.stderr
    found = [str(path.relative_to(tmp_path / "tree" / folder)) for path in (tmp_path / "tree").rglob("*") if path.is_file()]
    assert sorted(found) == ["dist/thing.js", "package.json"]


def test_another_digest_is_refused_and_leaves_nothing(registry, tmp_path):
    ended = fetch(registry, tmp_path / "tree", data=b"other")
    assert ended.returncode != 0
    assert "found the digest sha512-" in " ".join(ended.stderr.split())
    assert [path for path in (tmp_path / "tree").rglob("*") if path.is_file()] == []


def test_a_version_that_is_not_there_is_named(registry, tmp_path):
    ended = fetch(registry, tmp_path / "tree", version="9.9.9")
    assert ended.returncode != 0
    assert "thing-9.9.9.tgz" in ended.stderr
