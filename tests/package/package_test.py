"""The Debian package: what is in it, and that it runs from where it was unpacked."""

import pathlib
import re
import subprocess

import pytest

import served

pytestmark = pytest.mark.nightly
BUILD = served.ROOT / "build/release"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    command = ["cpack", "--config", BUILD / "CPackConfig.cmake", "-B", folder]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stdout + made.stderr
    (path,) = folder.glob("*.deb")
    return path


@pytest.fixture(scope="module")
def unpacked(package):
    subprocess.run(["dpkg-deb", "-x", package, package.parent / "root"], check=True)
    return package.parent / "root"


def control(package, field):
    return subprocess.run(["dpkg-deb", "-f", package, field], check=True, capture_output=True, text=True).stdout.strip()


def test_it_is_named_and_needs_the_libraries_that_the_program_was_linked_with(package):
    version = subprocess.run([served.BINARY, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]
    assert control(package, "Package") == "deepinfer" and control(package, "Version").startswith(version)
    for library in ("libssl3", "libfmt9", "libstdc++6"):
        assert library in control(package, "Depends")
    names = [part.split()[0] for part in control(package, "Depends").split(",")]
    assert not [name for name in names if name.endswith("-dev")]


def test_the_program_answers_from_the_model_of_the_package(unpacked):
    program, model = unpacked / "usr/bin/deepinfer", unpacked / "usr/share/deepinfer/models/mini"
    ended = subprocess.run([program, "generate", "--model", model, "--prompt", "What is 34 + 57?", "--temperature", "0",
                            "--max-tokens", "80"], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0 and "91" in ended.stdout, ended
    assert program.stat().st_size < 30 << 20  # without what is for debuggers


def test_the_service_starts_what_is_in_the_package(unpacked):
    unit = (unpacked / "lib/systemd/system/deepinfer.service").read_text()
    for path in re.findall(r"/usr/\S+?(?=[\s\"])", unit):
        assert (unpacked / path.lstrip("/")).exists(), path
    arguments = re.search(r'^Environment=DEEPINFER_ARGUMENTS="(.*)"$', unit, re.MULTILINE)[1].split()
    command = re.search(r"^ExecStart=/usr/bin/deepinfer (.*) \$DEEPINFER_ARGUMENTS$", unit, re.MULTILINE)[1].split()
    options = [part for part in command + arguments if part.startswith("--")]
    described = subprocess.run([served.BINARY, "serve", "--help"], check=True, capture_output=True, text=True).stdout
    assert options and all(option in described for option in options)
    assert "DynamicUser=yes" in unit and "ProtectSystem=strict" in unit


def test_the_settings_of_an_administrator_outlive_an_upgrade(package, unpacked):
    assert (unpacked / "etc/default/deepinfer").exists()
    listed = subprocess.run(["dpkg-deb", "--ctrl-tarfile", package], check=True, capture_output=True).stdout
    files = subprocess.run(["tar", "-xO", "./conffiles"], input=listed, check=True, capture_output=True, text=False).stdout
    assert files.decode() == "/etc/default/deepinfer\n"


def test_an_install_below_a_prefix_stays_there(tmp_path):
    command = ["cmake", "--install", BUILD, "--prefix", tmp_path / "here"]
    subprocess.run(command, check=True, capture_output=True)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"here/bin/deepinfer", "here/share/deepinfer/models/mini/config.json"} <= files
    assert all(pathlib.Path(file).parts[0] == "here" for file in files)
