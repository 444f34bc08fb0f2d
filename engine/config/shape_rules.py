"""Rules between the settings that shape batches and place workers, in words. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ringbatch.engine.config import worker_places

_OF_PADDING: Final = ("length_buckets", "padding_values", "lengths_input")
_OF_BATCHES: Final = (
    "allowed_batch_sizes",
    "pad_variable_length",
    "max_batch_elements",
    "max_batch_cost",
    "max_joining_rows",
)
_OF_WORKERS: Final = ("devices", "cpus")
_OF_RANGES: Final = ("target_wait_ms", "scale_up_after_s", "scale_down_after_s")


def problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the problems of one model's settings.

    Args:
        values: by key; a key whose own value is wrong is missing.

    Returns:
        The key that is to be changed, and the words for it.
    """
    cap = values.get("max_batch_size")
    sizes = values.get("allowed_batch_sizes")
    if cap and sizes and sizes[-1] != cap:
        yield (
            "allowed_batch_sizes",
            f"found {sizes[-1]} as the last, but it must be max_batch_size, which is {cap}",
        )
    for key in _OF_BATCHES:
        if values.get(key) and cap == 0:
            yield key, "is for batches, but max_batch_size is 0"
        elif values.get(key) and values.get("runtime") == "http":
            yield key, "is for models that run here, but this one runs on another server"
    for key in _OF_PADDING:
        if values.get(key) and values.get("pad_variable_length") is False:
            yield key, "is for pad_variable_length, which is false"
    workers = worker_places.most(values.get("workers", 0))
    if isinstance(values.get("workers"), tuple):
        fewest, _ = found = values["workers"]
        if fewest > workers:
            yield "workers", f"found {[*found]}, but the fewest must not be more than the most"
        elif not workers:
            yield "workers", f"found {[*found]}, but the most must be 1 or more"
    for key in _OF_WORKERS:
        count = len(values.get(key, ()))
        if workers and count > workers:
            yield key, f"found {count}, but it must be at most workers, which is {workers}"
    if values.get("devices") and values.get("device", "cpu") != "cpu":
        yield "devices", "says the same as device; keep one"


def notices(values: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings of one model that are legal and have no effect.

    Args:
        values: as for `problems`.
        raw: the section as written.

    Returns:
        The key, and the words for it.
    """
    if isinstance(values.get("workers"), int):
        for key in _OF_RANGES:
            if key in raw:
                yield key, "has no effect, because workers is one number and not a range"
