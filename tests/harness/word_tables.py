"""Tables in the docstrings of the descriptors, as values."""

from typing import NamedTuple

from ringbatch.shm import (
    descriptors,
    device_words,
    model_metric_words,
    region_words,
    upstream_words,
)

OFTEN = ("once", "rarely", "batch", "request", "step")
"""Frequencies of access, rising."""
HOT = OFTEN[OFTEN.index("batch") :]
NO_WORDS = {"SIZE", "TRIAL_SIZE", "MAX_TRIALS", "COPY_SIZE"}
RECORDS = {
    name: found
    for module in (descriptors, device_words, model_metric_words, region_words, upstream_words)
    for name, found in vars(module).items()
    if isinstance(found, type)
    and name.endswith("Words")
    and name not in ("CounterWords", "ModelCounterWords")
}


class Word(NamedTuple):
    """Row of a table of words."""

    number: int
    name: str
    stored_by: str
    stored: str
    loaded_by: str
    loaded: str
    order: str = "relaxed"


def constants(record: type) -> dict[str, int]:
    """Return the numbers that a descriptor has."""
    return {name: value for name, value in vars(record).items() if name.isupper()}


def words_of(text: str) -> list[Word]:
    """Return the table in a docstring."""
    lines = text[text.index("word  name") :].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.strip():
            break
        number, *columns = line.split()
        rows.append(Word(int(number), *columns))
    return rows


def table(record: type) -> list[Word]:
    return words_of(record.__doc__ or "")
