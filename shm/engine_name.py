"""Engine names: for operators, for clients, and in /dev/shm.

A name never looks like a process id, because both say which engine is meant. It has no dot, because
dots divide the names in /dev/shm, and is short enough for the path of a socket there.
"""

import re
from pathlib import PurePath
from typing import Final

UNNAMED: Final = "ringbatch"
"""The name of an engine that got none and has no configuration file."""
MAX_CHARACTERS: Final = 40
PATTERN: Final = rf"[A-Za-z][A-Za-z0-9_-]{{0,{MAX_CHARACTERS - 1}}}"
WORDS: Final = (
    f"1 to {MAX_CHARACTERS} letters, digits, dashes or underscores, the first of them a letter"
)
_NAME: Final = re.compile(PATTERN)


def is_engine_name(value: object) -> bool:
    """Return whether a value may name an engine."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def engine_name_of(file: PurePath) -> str:
    """Return the default name of an engine: the stem of its configuration file.

    A dash replaces each character that no name may have. A stem that begins with no letter gets one
    in front.
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "-", file.stem)
    return (name if is_engine_name(name[:1]) else f"{UNNAMED}-{name}")[:MAX_CHARACTERS]
