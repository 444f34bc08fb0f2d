"""Environment variables that libraries read at start-up, applied to a process forked later."""

import ctypes
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from threadpoolctl import ThreadpoolController

_MALLOC_OPTIONS: Final = {
    "MALLOC_TRIM_THRESHOLD_": -1,
    "MALLOC_MMAP_THRESHOLD_": -3,
    "MALLOC_ARENA_MAX": -8,
}
"""The variables that glibc's malloc reads, and their numbers in <malloc.h>; see mallopt(3)."""
_MATH_VARIABLES: Final = {
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "blis": "BLIS_NUM_THREADS",
}
"""The libraries that numpy may compute with, by threadpoolctl's names, and the variable that each
reads."""
_COMMON: Final = "OMP_NUM_THREADS"
"""Variable that they all read if their own is not set."""
_FIRST_NUMBER: Final = re.compile(r"\s*([1-9][0-9]*)")
"""OpenMP allows a list, with a number for each level of nesting; the first one counts."""


def follow(environment: Mapping[str, str]) -> None:
    """Apply an environment to malloc, and to math libraries that were loaded with one thread.

    Settings that the environment lacks stay as they are.
    """
    libc = ctypes.CDLL(None)
    for name, option in _MALLOC_OPTIONS.items():
        # Other C libraries have no mallopt, and do not read the variables either.
        with suppress(AttributeError):
            if (value := environment.get(name, "")).isdecimal():
                libc.mallopt(option, int(value))
    wanted = {library: threads(environment, name) for library, name in _MATH_VARIABLES.items()}
    if max(wanted.values()) > 1:
        for loaded in ThreadpoolController().lib_controllers:
            if count := wanted.get(loaded.internal_api):
                loaded.set_num_threads(count)


def threads(environment: Mapping[str, str], variable: str) -> int:
    """Return the threads that an environment gives a math library; 0 if it does not say."""
    texts = (environment.get(name, "") for name in (variable, _COMMON))
    found = (_FIRST_NUMBER.match(text) for text in texts)
    return next((int(match[1]) for match in found if match), 0)
