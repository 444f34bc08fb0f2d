"""What must hold between the settings that shape batches and place workers: pure, in words."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_OF_PADDING: Final = ("length_buckets", "padding_values", "lengths_input")
_OF_BATCHES: Final = ("allowed_batch_sizes", "pad_variable_length", "max_batch_elements")
_OF_WORKERS: Final = ("devices", "cpus")


def problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with one model's settings.

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
    workers = values.get("workers")
    for key in _OF_WORKERS:
        count = len(values.get(key, ()))
        if workers and count > workers:
            yield key, f"found {count}, but it must be at most workers, which is {workers}"
    if values.get("devices") and values.get("device", "cpu") != "cpu":
        yield "devices", "says the same as device; keep one"
