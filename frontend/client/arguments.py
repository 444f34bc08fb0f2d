"""Checks of what a program gives a client, so that errors name the argument and the right form.

An argument of another kind is a `TypeError`, and one of the right kind with an impossible value a
`ValueError`. Inputs are not here: as over HTTP, wrong ones are an `InvalidRequest`. Pure.
"""

from math import isfinite
from numbers import Real
from typing import Any

from ringbatch.shm.account import CLASS_NAMES, NOBODY, account_word
from ringbatch.shm.errors import type_in_words


def expect_engine(engine: Any, segment: Any) -> None:
    """Check what says which engine is meant.

    Raises:
        TypeError: one of them is of another kind.
    """
    if isinstance(engine, bool) or not isinstance(engine, (str, int, type(None))):
        raise TypeError(
            f"engine is {type_in_words(engine)}, not an engine's name, a str, or the process id of "
            "its supervisor, an int"
        )
    if not isinstance(segment, (str, type(None))):
        raise TypeError(
            f"segment is {type_in_words(segment)}, not the name of shared memory, a str"
        )


def spin_ns(spin_us: Any) -> int:
    """Return the time in nanoseconds that a thread watches for its answer.

    Raises:
        TypeError: it is no number.
        ValueError: it is below 0, or no finite number.
    """
    wanted = "not a number of microseconds from 0 up"
    if isinstance(spin_us, bool) or not isinstance(spin_us, Real):
        raise TypeError(f"spin_us is {type_in_words(spin_us)}, {wanted}")
    if not isfinite(spin_us) or spin_us < 0:
        raise ValueError(f"spin_us is {spin_us}, {wanted}")
    return int(float(spin_us) * 1000)


def account_of(priority: Any) -> int:
    """Return the account word of requests of a class, whose identity is the lane's.

    Raises:
        TypeError: the class is no str.
        ValueError: there is no class of that name.
    """
    wanted = "not interactive, normal or bulk"
    if not isinstance(priority, str):
        raise TypeError(f"priority is {type_in_words(priority)}, {wanted}")
    found = CLASS_NAMES.get(priority)
    if found is None:
        raise ValueError(f"priority is {priority!r}, {wanted}")
    return account_word(NOBODY, found)


def expect_model_name(model: Any) -> None:
    """Check the name of a model.

    Raises:
        TypeError: it is no str.
    """
    if not isinstance(model, str):
        raise TypeError(f"model is {type_in_words(model)}, not the name of a model, a str")
