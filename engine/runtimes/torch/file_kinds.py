"""Kind of a PyTorch file, read from its records before torch opens it.

PyTorch writes zip archives: exported programs (torch.export.save), TorchScript (torch.jit.save) and
pickles (torch.save), often under the same endings. The layouts are those of torch 2.6 to 2.13;
programs written before 2.8 have another, with its records at the top of the archive.
"""

import json
import zipfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final

from ringbatch.shm.errors import StartupError

_OLD_PROGRAM: Final = "serialized_exported_program.json"
_PAYLOADS: Final = ("data/weights/", "data/constants/")
_PICKLE_START: Final = b"\x80"
_EXPORT_WORDS: Final = "save the model with torch.export.save (.pt2) or torch.jit.save (.pt)"


class TorchFile(Enum):
    """Kinds of files that hold a model which can be run."""

    PROGRAM = "exported program"
    SCRIPT = "TorchScript"


def kind_of(path: Path, *, trust_pickle: bool) -> TorchFile:
    """Return the kind of a file.

    Args:
        path: the file.
        trust_pickle: True if parts of an exported program may be pickled Python objects.

    Raises:
        StartupError: it cannot be served; the text says what it is instead.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _kind_of_archive(path, archive, trust_pickle)
    except zipfile.BadZipFile:
        with path.open("rb") as file:
            pickled = file.read(1) == _PICKLE_START
        raise StartupError(
            _pickle_words(path)
            if pickled
            else f"{path}: is neither an exported program nor TorchScript, or not all of one; "
            f"{_EXPORT_WORDS}"
        ) from None


def pickled_words(path: Path, part: str) -> str:
    """Return why a part of a file is not read, with a remedy."""
    return (
        f"{path}: {part} is a pickled Python object, which runs code while it is read; "
        "if you trust where the file comes from, set trust_pickle = true"
    )


def _kind_of_archive(path: Path, archive: zipfile.ZipFile, trust_pickle: bool) -> TorchFile:
    names = archive.namelist()
    # All records are in a folder with the file's original name.
    inner = {name.partition("/")[2] for name in names}
    if any(name.startswith("data/aotinductor/") for name in inner):
        raise StartupError(
            f"{path}: holds machine code that AOTInductor has made; it is not read, so "
            f"{_EXPORT_WORDS}"
        )
    if any(name.startswith("models/") for name in inner) or _OLD_PROGRAM in names:
        if not trust_pickle:
            _refuse_pickled_parts(path, archive)
        return TorchFile.PROGRAM
    if "constants.pkl" in inner and any(name.startswith("code/") for name in inner):
        return TorchFile.SCRIPT
    if "data.pkl" in inner:
        raise StartupError(_pickle_words(path))
    raise StartupError(
        f"{path}: is a zip archive, but holds neither an exported program nor TorchScript; "
        f"{_EXPORT_WORDS}"
    )


def _refuse_pickled_parts(path: Path, archive: zipfile.ZipFile) -> None:
    for name, pickled in _payloads(path, archive):
        if pickled:
            raise StartupError(pickled_words(path, f"{name!r} in it"))


def _payloads(path: Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, bool]]:
    """Yield the weights and constants of an exported program, and whether each is pickled."""
    for record in archive.namelist():
        inner = record.partition("/")[2]
        if inner.startswith(_PAYLOADS) and inner.endswith("_config.json"):
            try:
                entries = json.loads(archive.read(record))["config"]
                yield from [(name, bool(entry["use_pickle"])) for name, entry in entries.items()]
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                raise StartupError(f"{path}: its record {record!r} cannot be read") from None


def _pickle_words(path: Path) -> str:
    return (
        f"{path}: is a pickle, as torch.save writes it: weights without the code that uses them, "
        f"or a module that runs whatever code lies in the file while it is read; {_EXPORT_WORDS}"
    )
