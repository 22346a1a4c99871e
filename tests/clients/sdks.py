"""The pinned SDKs, installed once in a cache folder outside the checkout."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import installation


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

        def install(folder: Path) -> None:
            # Without pip's own start script, which would name a folder that is about to be renamed.
            python = str(folder / "venv" / "bin" / "python")
            installation.run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
            pip = [python, "-m", "pip", "install", "--quiet", "--no-input"]
            installation.run([*pip, "--requirement", str(requirements)], folder)
            installation.npm(folder / "node", packages)

        # Changes with the pinned versions, and with the Python and Node that packages are built for.
        interpreters = [f"{sys.version} {sys.executable}".encode(), installation.node_version()]
        pinned = [*interpreters, *(file.read_bytes() for file in [requirements, *packages])]
        folder = installation.once("clients", pinned, install)
        return cls(python=folder / "venv" / "bin" / "python", node=folder / "node")
