"""The pinned SDKs, installed once in a cache folder outside the checkout."""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

# Limit of one installation; it takes half a minute.
INSTALL_SECONDS_MAX = 900


@dataclass(frozen=True)
class Sdks:
    """Where the SDKs are."""

    # Interpreter of an environment that has the Python SDKs.
    python: Path
    # Folder whose `node_modules` holds the Node SDKs.
    node: Path

    @classmethod
    def installed(cls, here: Path) -> Self:
        """Installs what `here` pins unless that was done before."""
        requirements = here / "python" / "requirements.txt"
        packages = [here / "node" / name for name in ("package.json", "package-lock.json")]
        folder = cache() / digest([requirements, *packages])
        if not folder.is_dir():
            partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
            try:
                install(partial, requirements, packages)
                settle(partial, folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        return cls(python=folder / "venv" / "bin" / "python", node=folder / "node")


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lanegate" / "clients"


def digest(files: list[Path]) -> str:
    """Changes with the pinned versions, and with the Python and Node that packages are built for."""
    node = subprocess.run(["node", "--version"], capture_output=True, check=True, timeout=30).stdout
    seen = hashlib.sha256(f"{sys.version} {sys.executable}".encode() + node)
    for file in files:
        seen.update(file.read_bytes())
    return seen.hexdigest()[:16]


def install(folder: Path, requirements: Path, packages: list[Path]) -> None:
    print(f"installing the SDKs into {folder.parent}", flush=True)
    node = folder / "node"
    node.mkdir(parents=True)
    for file in packages:
        shutil.copy(file, node)
    # Without pip's own start script, which would name a folder that is about to be renamed.
    python = str(folder / "venv" / "bin" / "python")
    run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    run([python, "-m", "pip", "install", "--quiet", "--no-input", "--requirement", str(requirements)], folder)
    run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], node)


def run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, timeout=INSTALL_SECONDS_MAX, check=True)


def settle(partial: Path, folder: Path) -> None:
    """In one step, so that a broken installation is never found; another run may have been faster."""
    try:
        partial.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
