"""Finds the files that ship with the package: SQL, the topic catalog and its schemas."""

from pathlib import Path
from typing import Final, Literal

_PACKAGE: Final = Path(__file__).parent


def resource_folder(name: Literal["sql", "topics"]) -> Path:
    """The folder in an installed wheel, or beside the package in a checkout."""
    installed = _PACKAGE / "_data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
