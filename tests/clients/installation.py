"""Pinned packages, installed once in a cache folder outside the checkout."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

# Limit of one step of an installation; the slowest takes a minute.
INSTALL_SECONDS_MAX = 900


def once(kind: str, pinned: Iterable[bytes], install: Callable[[Path], None]) -> Path:
    """The folder of `kind` for what is pinned; `install` fills it unless that was done before."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    seen = hashlib.sha256()
    for part in pinned:
        seen.update(part)
    folder = Path(base) / "lanegate" / kind / seen.hexdigest()[:16]
    if not folder.is_dir():
        partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
        print(f"installing the {kind} into {folder.parent}", flush=True)
        try:
            partial.mkdir(parents=True)
            install(partial)
            settle(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def npm(folder: Path, manifests: Iterable[Path]) -> None:
    """Installs what a package.json and its lock file say; runs no script of a package."""
    folder.mkdir(exist_ok=True)
    for file in manifests:
        shutil.copy(file, folder)
    run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)


def node_version() -> bytes:
    return subprocess.run(["node", "--version"], capture_output=True, check=True, timeout=30).stdout


def run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, timeout=INSTALL_SECONDS_MAX, check=True)


def settle(partial: Path, folder: Path) -> None:
    """In one step, so that a broken installation is never found; another run may have been faster."""
    try:
        partial.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
