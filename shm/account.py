"""The account word of a request: whose it is, and its share of a model. Pure.

Requests of one account share a model's time, and accounts share it among each other. The low 48
bits identify the account; 0 is nobody in particular. The next 8 bits are the request's class, and
the last 8 bits the account's weight less 1. Every value is valid: a frontend can spoil the order
of its own requests only.

In a frontend, a request's word may have more bits than these 64. They say up to which class the
request may still ask in its body. `word_for_slot` takes them away.

An account is not the account of a model's counts, see `ringbatch.shm.model_spec.ModelSpec`.
"""

from collections.abc import Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import Final

NOBODY: Final = 0
"""The word of a request of nobody in particular, of class normal and weight 1."""
MAX_WEIGHT: Final = 256
_IDENTITY_BITS: Final = 48
_CLASS_BITS: Final = 8
_WEIGHT_SHIFT: Final = _IDENTITY_BITS + _CLASS_BITS
IDENTITY_MASK: Final = (1 << _IDENTITY_BITS) - 1
"""The bits of the identity."""
EVERY_BIT: Final = (1 << 64) - 1
"""The word of no request that a frontend writes."""
_CLASS_MASK: Final = (1 << _CLASS_BITS) - 1
_KEY: Final = "key"
_CLASSED: Final = ~(_CLASS_MASK << _IDENTITY_BITS)
_WEIGHT_MASK: Final = MAX_WEIGHT - 1
_LIMIT_SHIFT: Final = 64
MAX_WORD: Final = (1 << _LIMIT_SHIFT) - 1
"""The largest word of a slot."""
MIXED: Final = -1
"""Stands for the class of requests that have different ones."""


class PriorityClass(IntEnum):
    """Classes of requests, by the number in the account word."""

    NORMAL = 0
    INTERACTIVE = 1
    BULK = 2


CLASS_NAMES: Final = {each.name.lower(): each for each in PriorityClass}
"""The classes by their names in settings and headers."""
_CLASSES: Final = {int(each): each for each in PriorityClass}
_ORDER: Final = (PriorityClass.INTERACTIVE, PriorityClass.NORMAL, PriorityClass.BULK)
"""Classes from the highest to the lowest; the first is level 1 of a request."""
LOWEST_LEVEL: Final = len(_ORDER)
LEVELS: Final = {each.name.lower(): level for level, each in enumerate(_ORDER, 1)}
"""The levels of the classes, as requests name them in their body, from the highest class on."""


def at_most(priority: PriorityClass, highest: PriorityClass) -> PriorityClass:
    """Return the lower of two classes."""
    return max(priority, highest, key=_ORDER.index)


def identity(kind: str, name: bytes, seed: int = 0) -> int:
    """Return the identity of the account with a name, never 0.

    Args:
        kind: of the name: two kinds may have the same names.
        name: of the account.
        seed: a number of the engine. Should two names have one identity, that ends with the engine.
    """
    key = seed.to_bytes(8, "little")
    text = kind.encode() + b"\0" + name
    digest = blake2b(text, digest_size=_IDENTITY_BITS // 8, key=key).digest()
    return int.from_bytes(digest, "little") or 1


def key_identity(digest: bytes, seed: int = 0) -> int:
    """Return the identity of the account of an API key.

    Args:
        digest: of the key, SHA-256.
        seed: as for `identity`.
    """
    return identity(_KEY, digest, seed)


def lane_identities(frontend_lanes: int, client_lanes: int, *, fair: bool) -> list[int]:
    """Return by lane the identity of all its requests, or -1 if its owner names their accounts.

    A frontend names them. A program with a `Client` is always one account, that of its lane.

    Args:
        frontend_lanes, client_lanes: of the segment; the clients' are the last.
        fair: False if there are no accounts.
    """
    first = frontend_lanes + 1
    own = range(first, first + client_lanes) if fair else [0] * client_lanes
    return [-1] * frontend_lanes + [*own]


def account_word(
    account: int, priority: PriorityClass = PriorityClass.NORMAL, weight: int = 1
) -> int:
    """Return the word for an identity, a class and a weight from 1 to `MAX_WEIGHT`."""
    return account | priority << _IDENTITY_BITS | (weight - 1) << _WEIGHT_SHIFT


def with_class(word: int, priority: PriorityClass) -> int:
    """Return a word with another class."""
    return word & _CLASSED | priority << _IDENTITY_BITS


def with_limit(word: int, highest: PriorityClass) -> int:
    """Return a word of at most a class, which its request's body cannot raise above that either."""
    limited = with_class(word & MAX_WORD, at_most(class_of(word), highest))
    return limited | _ORDER.index(highest) << _LIMIT_SHIFT


def word_for_slot(word: int, level: int = 0) -> int:
    """Return the word of a request as it stands in a slot.

    Args:
        word: of the frontend.
        level: that the request's body asks for, from 1 to `LOWEST_LEVEL`; 0 if it asks for none.
            What is nobody's in particular has no class.
    """
    limit = word >> _LIMIT_SHIFT
    own = word & MAX_WORD
    if level and own:
        return with_class(own, _ORDER[max(level - 1, limit)])
    return own


def word_of_lane(word: int, account: int) -> int:
    """Return the word of a request in the lane of a program, which says its class and no more.

    Args:
        word: in the slot.
        account: the lane's identity; `NOBODY` if there are no accounts.
    """
    return account_word(account, class_of(word)) if word and account else account


def identity_of(word: int) -> int:
    """Return the identity in a word."""
    return word & IDENTITY_MASK


def class_of(word: int) -> PriorityClass:
    """Return the class in a word; NORMAL for a number that names no class."""
    return _CLASSES.get(word >> _IDENTITY_BITS & _CLASS_MASK, PriorityClass.NORMAL)


def all_usual(words: Sequence[int]) -> bool:
    """Return whether all these words are of class normal and weight 1, as most are."""
    most = IDENTITY_MASK
    for word in words:  # noqa: SIM110 - mypyc compares integers of its own, and `max` objects
        if word > most:
            return False
    return True


def common_class(words: Sequence[int]) -> int:
    """Return the number of the class that all these words have; `MIXED` if they differ."""
    classes = {class_of(word) for word in words}
    return classes.pop() if len(classes) == 1 else MIXED


def same_share(first: int, second: int) -> bool:
    """Return whether two words have the same class and weight."""
    return first >> _IDENTITY_BITS == second >> _IDENTITY_BITS


def class_name(word: int) -> str:
    """Return the name of the class in a word, for people; empty for NORMAL."""
    priority = class_of(word)
    return priority.name.lower() if priority else ""


def weight_of(word: int) -> int:
    """Return the weight in a word."""
    return (word >> _WEIGHT_SHIFT & _WEIGHT_MASK) + 1
