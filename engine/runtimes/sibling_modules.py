"""Imports of modules in the model file's folder, re-read for each worker.

Python uses the compiled cache of a module if its source has the same size and the same second of
the last write (PEP 3147). A file that was replaced at once, or from an archive that gives every
file one time, can share both with the one before it. So a cache must here also be younger than the
file's last change of status (ctime), which no program can set.
"""

import os
import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

RACY_NS: Final = 2_000_000_000
"""A file that changed this shortly before it was compiled may have been read before it changed, and
file systems tell times apart to two seconds at worst."""


class _FreshSource(SourceFileLoader):
    """Module loader that uses a compiled cache only if it is surely of the present source."""

    def get_data(self, path: str) -> bytes:
        # importlib treats an unreadable compiled file as missing.
        if path == cache_from_source(self.path):
            changed_ns, compiled_ns = os.stat(self.path).st_ctime_ns, os.stat(path).st_mtime_ns
            if compiled_ns - changed_ns < RACY_NS:
                raise OSError(f"{path} may be of another text")
        return super().get_data(path)


def disable_bytecode_cache(folder: Path) -> None:
    """Have imports from a folder of `sys.path`, and below it, use sources, not older bytecode.

    Python itself imports from other entries of `sys.path` below it, such as an environment.
    """
    own = str(folder)

    def finder(path: str) -> FileFinder:
        entries = [entry for entry in sys.path if _is_below(path, entry)]
        if max(entries, key=len, default="") != own:
            raise ImportError(f"{path} is not of {own}", path=path)
        return FileFinder(
            path,
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
            (_FreshSource, SOURCE_SUFFIXES),
            (SourcelessFileLoader, BYTECODE_SUFFIXES),
        )

    sys.path_hooks.insert(0, finder)
    for path in [path for path in sys.path_importer_cache if _is_below(path, own)]:
        del sys.path_importer_cache[path]


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
