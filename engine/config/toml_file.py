"""TOML file, parsed to a document, or to an error with its line and cause."""

import re
import tomllib
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any, Final

from ringbatch.engine.config.kinds import runtime_of
from ringbatch.engine.config.problems import ConfigError

_PLACE: Final = re.compile(r"\(at line (\d+), column \d+\)")
_UNIT: Final = re.compile(r"=\s*[\d_.]+\s*[A-Za-z%]+$")
_CURES: Final = {
    "Invalid value": "; texts stand in straight quotes, true and false in lower case",
    "Cannot overwrite a value": "; a key may stand once in its section",
    "Cannot declare": "; a section may stand once",
    "Unescaped": r"; in double quotes write \\ for \, or put the text in single quotes",
    "Expected '='": "; = stands between a key and its value",
    r"Illegal character '\n'": "; a text ends on its line, with the quote that it begins with",
}
"""Remedies, by the begin of what tomllib says."""
_SHOWN: Final = 80
"""Characters of a line."""


def read(path: Path) -> dict[str, Any]:
    """Return the raw document of a TOML file, unchecked.

    Raises:
        ConfigError: the file cannot be read, or is not TOML; with line and column.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    # Editors of Windows put it there; it is no part of the text.
    data = data.removeprefix(BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        where = f"(at line {line}, column {column})"
        raise ConfigError(f"{path}: not UTF-8 text {where}{_remedy(path)}") from None
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = _reason(str(error), text)
        raise ConfigError(f"{path}: not valid TOML: {reason}{_remedy(path)}") from None


def _remedy(path: Path) -> str:
    """Return the way to give a model, if the file's ending is a model's."""
    return "" if runtime_of(path) is None else "; if this is a model, give it without --config"


def _reason(said: str, text: str) -> str:
    """Return tomllib's message with the line that it means, and at times a remedy."""
    lines = text.split("\n")
    # tomllib names no line if the document ends too soon.
    said = said.replace("(at end of document)", f"(at line {len(lines)}, the end of the document)")
    if (place := _PLACE.search(said)) is None:
        return said
    line = lines[int(place[1]) - 1].strip()
    if not line.isprintable() or not line:
        return said
    shown = line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."
    return f"{said}: {shown}{_cure(said, line)}"


def _cure(said: str, line: str) -> str:
    if line.endswith(":") or line.startswith("{"):
        return "; a section begins with a line such as [server], and = stands before a value"
    if _UNIT.search(line):
        return "; a number stands without its unit"
    return next((cure for begin, cure in _CURES.items() if said.startswith(begin)), "")
