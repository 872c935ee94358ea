"""Builds images on this host's Docker Engine through its socket: no client program, no registry, no network inside.

python containers/build.py base                       Debian with python3, by mmdebstrap
python containers/build.py image cpu                  torch and numpy from containers/locks on that base
python containers/build.py image cuda --base REGISTRY/NAME@sha256:…
python containers/build.py lock cpu                   write the lock of what pip resolves now
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from paceline.base.errors import InfrastructureError, PacelineError, PrerequisiteError, UserError
from paceline.drivers.machine.engine import engine_errors, open_engine

HERE = Path(__file__).parent
SUITE = "bookworm"
"""Debian release of the base; its python3 is the version that locks are made for."""
PYTHON = "3.11"
PACKAGES = "python3,libgomp1,libstdc++6"
BASE = f"paceline/base:{SUITE}"
BUILD_LIMIT_S = 1800.0
EPOCH = os.environ.get("SOURCE_DATE_EPOCH", "0")
LOCKED = {
    "cpu": ["torch==2.13.0", "numpy==2.4.6"],
    "accelerator": ["numpy==2.4.6"],
}
DEVICES = ("cpu", "cuda", "rocm", "ascend")
PIP = "pip==26.3"
"""Installs in the build stage, and is in no image."""
NOTE = """\
# Made by: python containers/build.py lock {name}
# For python {python} on this architecture. torch is the build for processors: it is in the index
# https://download.pytorch.org/whl/cpu, to be named in pip's configuration where wheels are not at hand.
"""


def make_base() -> None:
    """Make the base image from Debian's packages; the same packages give the same bytes."""
    if shutil.which("mmdebstrap") is None:
        raise PrerequisiteError("a base image needs mmdebstrap", fix="apt-get install mmdebstrap")
    with tempfile.TemporaryDirectory() as folder:
        tar = Path(folder, "base.tar")
        command = [
            "mmdebstrap",
            "--quiet",
            "--variant=essential",
            '--aptopt=Acquire::Retries "3"',
            f"--include={PACKAGES}",
            SUITE,
            str(tar),
        ]
        done = subprocess.run(command, env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH}, check=False)
        if done.returncode:
            raise InfrastructureError(f"mmdebstrap ended with exit code {done.returncode}")
        repository, tag = BASE.split(":")
        with engine_errors():
            open_engine(BUILD_LIMIT_S).import_image_from_file(str(tar), repository=repository, tag=tag)
        print(f"{BASE}: sha256 of its files {hashlib.sha256(tar.read_bytes()).hexdigest()}")


def make_image(device: str, base: str | None) -> None:
    """Build a device's image, with the wheels of its lock as part of the context."""
    if base is None and device != "cpu":
        raise UserError(
            f"the image for {device} is built on the vendor's",
            where="--base",
            expected="REGISTRY/NAME@sha256:…",
            fix=f"make image DEVICE={device} BASE=REGISTRY/NAME@sha256:…",
        )
    if base is not None and not re.search(r"(^|@)sha256:[0-9a-f]{64}$", base):
        raise UserError(
            f"'{base}' is not pinned",
            where="--base",
            expected="REGISTRY/NAME@sha256:…, or the id of an image",
        )
    lock = HERE / "locks" / ("cpu.txt" if device == "cpu" else "accelerator.txt")
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        fetch("--require-hashes", "--no-deps", "--requirement", str(lock), into=context / "wheels")
        fetch("--no-deps", PIP, into=context / "wheels")
        shutil.copytree(HERE / "locks", context / "locks")
        shutil.copy(HERE / f"{device}.Dockerfile", context / "Dockerfile")
        build(context, f"paceline/{device}:local", base or BASE)


def fetch(*arguments: str, into: Path) -> None:
    """Have pip put wheels into a folder."""
    command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", "--python-version", PYTHON, "--dest", str(into), *arguments]
    if subprocess.run(command, check=False).returncode:
        raise InfrastructureError("pip could not fetch the wheels of the lock")


def build(context: Path, tag: str, base: str) -> None:
    """Build and tag an image; steps that are unchanged come from the engine's cache."""
    engine = open_engine(BUILD_LIMIT_S)
    arguments = {"BASE": base, "SOURCE_DATE_EPOCH": EPOCH, "GIT_SHA": revision()}
    said: list[str] = []
    with engine_errors(), tempfile.TemporaryFile() as tar:
        write_context(context, tar)
        tar.seek(0)
        for line in engine.build(
            fileobj=tar,
            custom_context=True,
            tag=tag,
            buildargs=arguments,
            network_mode="none",
            rm=True,
            forcerm=True,
            decode=True,
        ):
            said.append(str(line.get("stream") or line.get("error") or "").rstrip())
            if "error" in line:
                raise InfrastructureError(f"{tag} was not built\n" + "\n".join(filter(None, said[-20:])))
        found = engine.inspect_image(tag)
    print(f"{tag}: {found['Id']}, {found['Size'] / 1e6:.0f} MB")


def write_context(context: Path, file: Any) -> None:
    """Write a build context without times and owners, so that the cache sees contents only."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = int(EPOCH), 0, 0, "", ""
        return entry

    with tarfile.open(fileobj=file, mode="w") as tar:
        for path in sorted(context.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(context)), recursive=False, filter=plain)


def revision() -> str:
    """Return the commit of this checkout."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def make_lock(name: str) -> None:
    """Resolve a lock's packages and write every one with its digest."""
    with tempfile.TemporaryDirectory() as folder:
        constraints = HERE.parent / "constraints.txt"
        fetch("--constraint", str(constraints), *LOCKED[name], into=Path(folder))
        lines = io.StringIO()
        for wheel in sorted(Path(folder).glob("*.whl"), key=lambda p: p.name.lower()):
            package, version = wheel.name.split("-")[:2]
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            lines.write(f"{package.replace('_', '-')}=={version} --hash=sha256:{digest}\n")
    text = NOTE.format(name=name, python=PYTHON) + lines.getvalue()
    (HERE / "locks" / f"{name}.txt").write_text(text, encoding="utf-8")


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("base")
    image = what.add_parser("image")
    image.add_argument("device", choices=DEVICES)
    image.add_argument("--base")
    what.add_parser("lock").add_argument("name", choices=sorted(LOCKED))
    given = parser.parse_args()
    try:
        if given.what == "base":
            make_base()
        elif given.what == "image":
            make_image(given.device, given.base or None)
        else:
            make_lock(given.name)
    except PacelineError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
