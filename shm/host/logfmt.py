"""Fields of a line of the log as logfmt: ``name=value``, apart by blanks; pure."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_PLAIN: Final = re.compile(r"[!#-<>-~]+")
"""A value that needs no quotes: neither blanks, nor quotes, nor another ``=``."""


def as_words(fields: Mapping[str, Any]) -> str:
    """Return fields as ``name=value``; values with other than visible ASCII characters are quoted.

    Args:
        fields: by name; a float is written to three decimals, what is not a number as `str` has it.
    """
    words = []
    for name, value in fields.items():
        kind = type(value)
        if kind is float:
            words.append(f"{name}={value:.3f}")
        elif kind is int:
            words.append(f"{name}={value}")
        else:
            words.append(f"{name}={_word(str(value))}")
    return " ".join(words)


def _word(text: str) -> str:
    # Most are such, and known for it sooner than by the pattern.
    if (text.isascii() and text.isalnum()) or _PLAIN.fullmatch(text):
        return text
    # The one control character that JSON leaves as it is.
    return json.dumps(text).replace("\x7f", r"\u007f")
