"""Lines of a file of API keys, with the options that may stand behind a key. Pure.

A line is a key of 16 to 512 printable ASCII characters, or ``sha256:`` and the 64 hexadecimal
digits of a key's digest. Options stand behind it, such as ``weight=4 class=bulk``, with blanks
between them. `OPTIONS` has them all. Empty lines, and lines that begin with ``#``, are comments.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from ringbatch.shm.account import CLASS_NAMES, MAX_WEIGHT, PriorityClass, at_most
from ringbatch.shm.account_limits import MAX_MODEL_S_PER_S, MAX_REQUESTS_PER_S, AccountLimits
from ringbatch.shm.errors import StartupError
from ringbatch.shm.layout import MAX_SLOTS

LEAST_KEY_CHARACTERS: Final = 16
"""The fewest characters of an API key: a shorter one could be guessed."""
_KEY: Final = re.compile(rf"[!-~]{{{LEAST_KEY_CHARACTERS},512}}")
_DIGEST: Final = re.compile(r"sha256:([0-9a-fA-F]{64})")
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_CLASSES: Final = "interactive, normal or bulk"
_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,15}")
_TAKEN_NAMES: Final = ("unix", "other")


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """Options of an API key.

    Attributes:
        weight: the share of its account.
        priority: the class of its requests that name none; by default normal, or `highest` if that
            is lower.
        highest: the highest class that its requests may have.
        name: of its account, for people; empty if the key has none.
        in_flight, requests_per_s, model_s_per_s: its own limits, see `AccountLimits`.
    """

    weight: int = 1
    priority: PriorityClass = PriorityClass.NORMAL
    highest: PriorityClass = PriorityClass.INTERACTIVE
    name: str = ""
    in_flight: int | None = None
    requests_per_s: float | None = None
    model_s_per_s: float | None = None

    @property
    def limits(self) -> AccountLimits:
        """The key's own limits."""
        return AccountLimits(self.in_flight, self.requests_per_s, self.model_s_per_s)


class Option(NamedTuple):
    """Option that may follow a key on its line.

    Attributes:
        attribute: the attribute of `KeyOptions` that holds the value.
        read: returns the value of a text; None if the text is wrong.
        right: description of a right value, for the error.
    """

    attribute: str
    read: Callable[[str], Any]
    right: str


def _whole(least: int, most: int) -> Callable[[str], int | None]:
    """Return a reader of whole numbers in a range."""

    def read(text: str) -> int | None:
        digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        return int(text) if digits and least <= int(text) <= most else None

    return read


def _name(text: str) -> str | None:
    """Return a name; None if it could be a key, or stand for other accounts."""
    return text if _NAME.fullmatch(text) and text not in _TAKEN_NAMES else None


def _number(most: int) -> Callable[[str], float | None]:
    """Return a reader of numbers above 0, up to a bound."""

    def read(text: str) -> float | None:
        found = float(text) if _DECIMAL.fullmatch(text) else 0.0
        return found if 0 < found <= most else None

    return read


OPTIONS: Final[Mapping[str, Option]] = {
    "class": Option("priority", CLASS_NAMES.get, _CLASSES),
    "highest": Option("highest", CLASS_NAMES.get, _CLASSES),
    "in_flight": Option("in_flight", _whole(1, MAX_SLOTS), f"a number from 1 to {MAX_SLOTS}"),
    "model_s_per_s": Option(
        "model_s_per_s",
        _number(MAX_MODEL_S_PER_S),
        f"a number above 0, at most {MAX_MODEL_S_PER_S}",
    ),
    "name": Option("name", _name, "1 to 15 letters, digits and dashes, but not unix or other"),
    "requests_per_s": Option(
        "requests_per_s",
        _number(MAX_REQUESTS_PER_S),
        f"a number above 0, at most {MAX_REQUESTS_PER_S}",
    ),
    "weight": Option("weight", _whole(1, MAX_WEIGHT), f"a number from 1 to {MAX_WEIGHT}"),
}
"""The options, by the names that they have in the file."""


def read_keys(text: str) -> dict[bytes, KeyOptions]:
    """Return the options of the API keys in the text of a file, by their SHA-256 digests.

    Raises:
        StartupError: a line is wrong; the text names it and never quotes a key.
    """
    found: dict[bytes, KeyOptions] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        key, *words = line.split()
        digest = _digest(key, number)
        found[digest] = _options(words, number)
    return found


def _digest(key: str, line: int) -> bytes:
    if digest := _DIGEST.fullmatch(key):
        return bytes.fromhex(digest[1])
    if _KEY.fullmatch(key) and not key.startswith("sha256:"):
        return hashlib.sha256(key.encode()).digest()
    raise StartupError(
        f"line {line} is no API key: that is {LEAST_KEY_CHARACTERS} to 512 printable ASCII "
        "characters without blanks, or sha256: and 64 hexadecimal digits"
    )


def _options(words: list[str], line: int) -> KeyOptions:
    found: dict[str, Any] = {}
    for word in words:
        name, _, text = word.partition("=")
        option = OPTIONS.get(name)
        if option is None:
            names = ", ".join(f"{name}=" for name in OPTIONS)
            raise StartupError(f"line {line} has {_shown(word)} behind its API key, not {names}")
        if option.attribute in found:
            raise StartupError(f"line {line} has {name}= twice behind its API key, not once")
        value = option.read(text)
        if value is None:
            raise StartupError(
                f"line {line} has {_shown(word)} behind its API key; {name}= takes {option.right}"
            )
        found[option.attribute] = value
    options = KeyOptions(**found)
    usual = at_most(options.priority, options.highest)
    if "priority" in found and usual is not options.priority:
        highest = options.highest.name.lower()
        raise StartupError(
            f"line {line} has class={options.priority.name.lower()}, which is above "
            f"highest={highest}; with it, class= takes {highest} or lower"
        )
    return replace(options, priority=usual)


def _shown(word: str) -> str:
    """Return a word as an error may have it: a long one may hold a key."""
    name, _, text = word.partition("=")
    if len(text if name in OPTIONS else word) < LEAST_KEY_CHARACTERS:
        return ascii(word)
    return f"a word of {len(word)} characters"
