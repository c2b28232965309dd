"""Resolves tools/packages.txt into third_party.lock: versions and digests of what is asked for and of what that needs.

Run it on Debian 12 x86-64 after a change of packages.txt, with npm on the PATH:  .venv/bin/python tools/update_lock.py
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = """\
# Written by tools/update_lock.py from tools/packages.txt; do not edit. Installed by ./run setup.
# GROUP apt NAME VERSION: the Debian 12 version the project was built with; a later one of Debian 12 is accepted.
# GROUP pip NAME VERSION sha256:DIGEST: exactly this file.
# GROUP npm FOLDER VERSION INTEGRITY: exactly this package, at FOLDER below .tools/GROUP; VERSION may name another package.
# GROUP sdist NAME VERSION sha256:DIGEST: exactly this source package, unpacked to .tools/GROUP/NAME-VERSION.
"""


def wanted(kind):
    """Names by group, in the order of the file."""
    groups = {}
    for line in (ROOT / "tools/packages.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            group, its_kind, name = line.split()
            if its_kind == kind:
                groups.setdefault(group, []).append(name)
    return groups


def output_of(*command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **options).stdout


def apt_lines():
    for group, names in wanted("apt").items():
        for name in names:
            candidate = output_of("apt-cache", "policy", name).split("Candidate:")[1].split()[0]
            yield f"{group} apt {name} {candidate}"


def pip_lines():
    """All groups share one environment, so each is resolved together with those before it."""
    requirements, locked = [], set()
    for group, names in wanted("pip").items():
        requirements += names
        options = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
        report = json.loads(output_of(sys.executable, "-m", "pip", *options, *requirements))
        for item in sorted(report["install"], key=lambda item: item["metadata"]["name"].lower()):
            name, version = item["metadata"]["name"], item["metadata"]["version"]
            digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
            if name not in locked:
                requirements.append(f"{name}=={version}")
                yield f"{group} pip {name} {version} sha256:{digest}"
            locked.add(name)


def runs_here(package):
    """Packages of other systems are optional ones that npm would skip too."""
    fits = [("os", "linux"), ("cpu", "x64"), ("libc", "glibc")]
    return all(here in package.get(key, [here]) for key, here in fits)


def npm_lines():
    for group, names in wanted("npm").items():
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "package.json").write_text('{"private": true}')
            options = ["--package-lock-only", "--ignore-scripts", "--save-exact", "--no-audit", "--no-fund"]
            output_of("npm", "install", *options, *names, cwd=folder)
            lock = json.loads(pathlib.Path(folder, "package-lock.json").read_text())
        for path, package in sorted(lock["packages"].items()):
            if path and runs_here(package):
                alias = f"npm:{package['name']}@" if "name" in package else ""
                yield f"{group} npm {path} {alias}{package['version']} {package['integrity']}"


def sdist_lines():
    for group, names in wanted("sdist").items():
        for requirement in names:
            name, version = requirement.split("==")
            with tempfile.TemporaryDirectory() as folder:
                options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-binary", name, "-d", folder]
                output_of(sys.executable, "-m", "pip", "download", *options, requirement)
                (archive,) = pathlib.Path(folder).iterdir()
                digest = hashlib.sha256(archive.read_bytes()).hexdigest()
            yield f"{group} sdist {name} {version} sha256:{digest}"


if __name__ == "__main__":
    lines = [HEADER.rstrip("\n"), *apt_lines(), *pip_lines(), *npm_lines(), *sdist_lines()]
    (ROOT / "third_party.lock").write_text("\n".join(lines) + "\n")
