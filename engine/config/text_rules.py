"""Defaults and rules for the batches of models of texts, in words. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ringbatch.shm.texts import FILLER, IDS

BUCKETS: Final = (
    *(8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768),
    *(1024, 1536, 2048, 3072, 4096, 6144, 8192),
)
"""Tokens. From 16 on, texts of one bucket differ in what they cost by half at the most."""
BATCH_TOKENS: Final = 256
"""Tokens of a batch; in a larger one a token costs a CPU no less, and the next requests wait."""
_DECIDED: Final = ("pad_variable_length", "padding_values", "lengths_input", "warm_up_file")


def shape(values: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a model of texts, over those that hold for any model.

    Args:
        values: by key; a key whose own value is wrong is missing.
        raw: the section as written.
    """
    return {
        "pad_variable_length": True,
        "padding_values": (f"{IDS.name}={FILLER}",),
        "length_buckets": values.get("length_buckets") or BUCKETS,
        "max_batch_elements": (
            values.get("max_batch_elements", 0) if "max_batch_elements" in raw else BATCH_TOKENS
        ),
    }


def problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the problems of a text model's settings: the key, and the words for it.

    Args:
        values: as for `shape`.
    """
    for key in _DECIDED:
        if values.get(key):
            yield key, "is not for texts, which are padded by their tokens as they are"
    if values.get("max_batch_size") == 0:
        yield "max_batch_size", "is 0, but a model of texts takes batches; set 1 or more"
