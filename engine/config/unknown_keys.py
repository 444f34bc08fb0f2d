"""Suggestions for unknown keys and flags. Pure."""

import difflib
from collections.abc import Iterable
from typing import Final

UNITS: Final = ("s", "ms", "us", "bytes")
"""Ends of the names of settings that have a unit."""
_FEW: Final = 8
_WAIT: Final = 'max_latency_ms, in milliseconds, under policy = "fixed"'
_POOL: Final = "workers, a number, or [fewest, most]"
_ELSEWHERE: Final = {
    # Triton's config.pbtxt.
    "backend": "runtime",
    "dynamicbatching": "always on; policy, max_batch_size and max_latency_ms say how",
    "defaulttimeoutmicroseconds": "timeout_s, in seconds",
    "instancegroup": "workers, and device or devices",
    "maxqueuedelaymicroseconds": _WAIT,
    "maxqueuesize": "max_in_flight in [server]",
    "modelwarmup": "warm_up and warm_up_file",
    "platform": "runtime",
    "preferredbatchsize": "not needed, as a batch takes what waits; "
    "allowed_batch_sizes pads batches to these sizes",
    "versionpolicy": "a section [models.NAME.versions.VERSION] for each version",
    # TorchServe's.
    "defaultworkerspermodel": "workers",
    "jobqueuesize": "max_in_flight in [server]",
    "maxbatchdelay": _WAIT,
    "maxworkers": _POOL,
    "minworkers": _POOL,
    "responsetimeout": "batch_timeout_s for one run of a batch, timeout_s for a request",
    "startuptimeout": "load_timeout_s",
    # LitServe's.
    "accelerator": "device",
    "gpu": "device",
    "gpus": "device, or devices",
    "batchtimeout": f"{_WAIT}; batch_timeout_s bounds one run of a batch",
    "workersperdevice": "workers",
    # Of Ray Serve, mosec, and others.
    "batchwaittimeouts": _WAIT,
    "maxwaitms": _WAIT,
    "maxwaittime": _WAIT,
    "numworkers": "workers",
    "replicas": "workers",
    "file": "path",
    "model": "path",
    "modelpath": "path",
    "modelfile": "path",
    "modelrepository": "a section [models.NAME] for each model",
    "modelstore": "a section [models.NAME] for each model",
    "storageuri": "path",
    "bind": "host and port",
    "metricsport": "control_port",
    "certfile": "tls_certificate",
    "keyfile": "tls_key",
}
"""Words of other servers, in lower case and without separators: what says the same here."""


def words(key: str, known: Iterable[str], *, kind: str = "key", listed: str) -> str:
    """Return the message that refuses a key, with the key that was probably meant.

    Args:
        key: as it was written; of a flag with its dashes.
        known: all that there are, written so too.
        kind: the kind of name: a key, or a flag.
        listed: where all of them stand, in case they are too many to be listed here.
    """
    every = tuple(known)
    name = _folded(key)
    if not is_of_another_server(key):
        with_units = {f"{_spelt(key)}_{unit}" for unit in UNITS}
        for candidate in every:
            if _spelt(candidate) in with_units:
                return f"unknown {kind}; did you mean {candidate}?"
    for candidate in every:
        if _folded(candidate) == name:
            return f"unknown {kind}; did you mean {candidate}?"
    if len(every) > _FEW and is_of_another_server(key):
        here = _ELSEWHERE[name]
        if kind == "flag" and here == "path":
            here = "an argument without a flag, as in `ringbatch serve model.py`"
        return f"unknown {kind}; what other servers call so is here {here}"
    if candidate := closest(key, every):
        return f"unknown {kind}; did you mean {candidate}?"
    if len(every) <= _FEW:
        return f"unknown {kind}; known are {', '.join(every)}"
    return f"unknown {kind}; all that there are stand in {listed}"


def is_of_another_server(key: str) -> bool:
    """Return whether other servers write the word for a setting like this."""
    return _folded(key) in _ELSEWHERE


def closest(word: str, known: Iterable[str]) -> str:
    """Return the known word most like another, in any case; empty if none is alike."""
    # All flags begin alike, with dashes, so that these say nothing.
    lowered = {name.lower().lstrip("-"): name for name in known}
    found = difflib.get_close_matches(word.lower().lstrip("-"), lowered, n=1)
    return lowered[found[0]] if found else ""


def _spelt(name: str) -> str:
    """Return the name of a key or a flag as that of a key."""
    return name.lower().lstrip("-").replace("-", "_")


def _folded(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
