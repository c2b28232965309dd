"""Resolves tools/packages.txt into third_party.lock: Debian versions, Python versions with what they need, digests.

Run it on Debian 12 x86-64 after a change of packages.txt:  .venv/bin/python tools/update_lock.py
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = """\
# Written by tools/update_lock.py from tools/packages.txt; do not edit. Installed by ./run setup.
# GROUP apt NAME VERSION: the Debian 12 version the project was built with; a later one of Debian 12 is accepted.
# GROUP pip NAME VERSION sha256:DIGEST: exactly this file.
"""


def wanted():
    for line in (ROOT / "tools/packages.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.split()


def apt_lines():
    for group, kind, name in wanted():
        if kind == "apt":
            policy = subprocess.run(["apt-cache", "policy", name], capture_output=True, text=True, check=True).stdout
            candidate = policy.split("Candidate:")[1].split()[0]
            yield f"{group} apt {name} {candidate}"


def pip_lines():
    requirements = [name for _, kind, name in wanted() if kind == "pip"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    report = json.loads(subprocess.run(command + requirements, capture_output=True, text=True, check=True).stdout)
    for item in sorted(report["install"], key=lambda item: item["metadata"]["name"].lower()):
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        yield f"test pip {name} {version} sha256:{digest}"


if __name__ == "__main__":
    text = HEADER + "\n".join([*apt_lines(), *pip_lines()]) + "\n"
    (ROOT / "third_party.lock").write_text(text)
