"""Suggestions for unknown keys and flags. Pure."""

import difflib
from collections.abc import Iterable
from typing import Final

UNITS: Final = ("s", "ms", "us", "bytes")
"""Ends of the names of settings that have a unit."""
_FEW: Final = 8
_WAIT: Final = 'max_latency_ms, in milliseconds, under policy = "fixed"'
_POOL: Final = "workers, a number, or [fewest, most]"
_LOG: Final = "standard error, which goes to a file by 2>>prod.log"
_LEVEL: Final = "log_level"
_NAME: Final = "NAME in the header [models.NAME]"
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
    "cert": "tls_certificate",
    "certfile": "tls_certificate",
    "sslcertfile": "tls_certificate",
    "keyfile": "tls_key",
    "sslkeyfile": "tls_key",
    "cacerts": "tls_client_ca",
    "sslcacerts": "tls_client_ca",
    # Gunicorn's, uvicorn's, TensorFlow Serving's and vLLM's.
    "accesslogfile": _LOG,
    "errorlogfile": _LOG,
    "logfile": _LOG,
    "debug": _LEVEL,
    "quiet": _LEVEL,
    "verbose": _LEVEL,
    "allowedorigins": "cors_origins",
    "alloworigins": "cors_origins",
    "corsalloworigins": "cors_origins",
    "apikey": "api_keys_file",
    "token": "api_keys_file",
    "daemon": "systemd's affair: `ringbatch units` writes unit files",
    "gracefultimeout": "drain_s",
    "timeoutgracefulshutdown": "drain_s",
    "httpport": "port",
    "restapiport": "port",
    "keepalive": "idle_timeout_s",
    "timeoutkeepalive": "idle_timeout_s",
    "limitconcurrency": "max_in_flight, and max_connections",
    "workerconnections": "max_connections",
    "limitrequestbody": "max_request_bytes",
    "maxbodysize": "max_request_bytes",
    "modelbasepath": "path",
    "modeldir": "path",
    "modelname": _NAME,
    "servedmodelname": _NAME,
    "reload": "the command `ringbatch reload`, given when a file has changed",
    "uds": "unix_socket",
}
"""Words of other servers, in lower case and without separators: what says the same here."""
_OF_SERVE: Final = "maxbatchsize"
"""A flag that a command with flags for settings has."""
_AS_FLAGS: Final = {
    "path": "an argument without a flag, as in `ringbatch serve model.py`",
    _NAME: "--name",
}
"""Words of `_ELSEWHERE` that a command line has in another form."""


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
    folded = {_folded(candidate) for candidate in every}
    # Other commands, such as bench, have flags of their own.
    is_served = len(every) > _FEW if kind == "key" else _OF_SERVE in folded
    if is_served and is_of_another_server(key):
        here = _ELSEWHERE[name]
        here = here if kind == "key" else _AS_FLAGS.get(here, here)
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
