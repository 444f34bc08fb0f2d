"""Valid names of models, in URLs and in files. Pure."""

import re
from typing import Final

TAKEN_NAMES: Final = frozenset({".", "..", "stats"})
"""Reserved names: they have another meaning in paths."""
NAME_WORDS: Final = (
    "a model's name must be 1 to 128 letters of ASCII, digits, dots, dashes or underscores, "
    "and not ., .. or stats, which /v2/models/stats has taken"
)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


def is_model_name(name: str) -> bool:
    """Return whether a model may have this name."""
    return _NAME.fullmatch(name) is not None and name not in TAKEN_NAMES
