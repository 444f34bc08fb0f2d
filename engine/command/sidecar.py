"""``ringbatch sidecar``: a configuration from the flags of KServe's agent, which it replaces.

The agent's flags have the same meaning here, those of its logger too. Flags of its model puller
have no effect, and the log says so. Flags that would pull models, or log requests in a way that the
payload log cannot, are refused. Go's form of flags, ``-port=9081``, is accepted too.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from ringbatch.engine.command.engine_arguments import number
from ringbatch.engine.config.document import ConfigError, Place, conclude
from ringbatch.engine.config.settings import Config

MODEL: Final = "model"
"""Name of the one model, if it needs a name; requests have names of their own."""

KEYS: Final = {
    "name",
    "frontends",
    "max_request_bytes",
    "max_in_flight",
    "drain_s",
    "stop_delay_s",
    "hang_timeout_s",
    "log_level",
    "log_format",
    "access_log",
    "access_log_sample",
    "access_log_slower_than_ms",
    "server_timing",
    "timeout_s",
    "policy",
    "workers",
    "forward_headers",
    "isolate_errors",
    "kserve_errors",
}
"""Settings that may stand beside the flags of KServe's agent."""
EXAMPLES: Final = """\
Answers predictions for any model, POST to any path that ends in :predict. It forms batches and
sends them to the model server on this host. It passes all other requests on unchanged. Readiness,
at /v2/health/ready and for the probes of Kubernetes, is that of both.

With --max-latency, the oldest request of a batch waits that long for others, as with KServe's agent
(policy fixed). Without it, no batch waits while fewer than --workers batches are at the server
(policy eager).

exit status:
  0  a signal stopped the engine; requests without an answer after drain_s were cut off, and logged
  1  the engine failed, for example because its files in /dev/shm were removed
  2  the engine could not start, or a flag is refused; the reason is on standard error
  130  a second Ctrl-C ended the engine at once, without answers to requests in flight
  143  a second SIGTERM did so

examples:
  ringbatch sidecar --component-port 8501
  ringbatch sidecar --port 9081 --component-port 8080 --max-batchsize 32 --max-latency 50
"""


class Flag(NamedTuple):
    """A flag of the agent's that means something here.

    Attributes:
        name: without dashes.
        place: of the key that it sets.
        metavar: stands for its value.
        about: for the help.
        default: of the agent's; None if ours holds.
    """

    name: str
    place: Place
    metavar: str
    about: str
    default: int | str | None = None


_SERVER: Final = ("server",)
_MODEL: Final = ("models", MODEL)
FLAGS: Final = (
    Flag("port", (*_SERVER, "port"), "N", "port on which clients are served", 9081),
    Flag("host", (*_SERVER, "host"), "ADDRESS", "address on which they are served", "0.0.0.0"),
    Flag("max-batchsize", (*_MODEL, "max_batch_size"), "N", "instances in the largest batch", 32),
    Flag(
        "max-latency",
        (*_MODEL, "max_latency_ms"),
        "MS",
        "milliseconds that the oldest request of a batch waits for others",
    ),
    Flag(
        "log-url",
        (*_SERVER, "payload_log"),
        "URL",
        "server that gets requests and answers (the payload log)",
    ),
    Flag(
        "log-mode", (*_SERVER, "payload_log_mode"), "{all,request,response}", "bodies that it gets"
    ),
    Flag("source-uri", (*_SERVER, "payload_log_source"), "URI", "source of its events"),
)
ATTRIBUTES: Final = {
    "inference-service": "inferenceservicename",
    "namespace": "namespace",
    "component": "component",
    "endpoint": "endpoint",
}
"""Flags of the agent's that name what serves, and the attributes that its logger makes of them."""
_AUTHORITIES: Final = "/etc/tls/logger"
"""Folder in which KServe mounts the file of --logger-ca-cert-file."""
_LOGGED_BYTES: Final = 1 << 24
"""Most bytes of a body that are logged; the agent's own logger keeps all."""
COMPONENT_PORT: Final = 8080
_LAST_PORT: Final = 65535
IDLE: Final = (
    "config-dir",
    "log-batch-interval",
    "log-batch-size",
    "model-dir",
    "probe-period",
)
"""Flags of the agent's that have no meaning without its puller and its stores of events, or with
probes that are answered at once."""
_OF_LOGGER: Final = (
    *ATTRIBUTES,
    "metadata-headers",
    "metadata-annotations",
    "logger-ca-cert-file",
)
REFUSED: Final = {
    "logger-tls-skip-verify": "a server that nobody vouches for gets no requests; name its "
    "authority with --logger-ca-cert-file",
    "log-store-path": "requests are kept by the server at --log-url, not in an object store",
    "log-store-format": "events have the form of CloudEvents",
    "log-marshaller": "events have the form of CloudEvents",
    "log-marshaller-url": "events have the form of CloudEvents",
    "log-marshaller-port": "events have the form of CloudEvents",
    "enable-puller": "models are not pulled here",
}
_OFF: Final = ("", "false", "0", "f", "FALSE", "False", "F")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the agent's flags; ours, for what the agent has none, are the caller's to add."""
    group = parser.add_argument_group("as for KServe's agent")
    for flag in FLAGS:
        default = f" (default: {flag.default})" if flag.default is not None else ""
        _add(group, flag.name, metavar=flag.metavar, help=flag.about + default)
    _add(
        group,
        "component-port",
        metavar="N",
        help=f"port of the model server on this host (default: {COMPONENT_PORT})",
    )
    _add(
        group,
        "enable-batcher",
        nargs="?",
        const="true",
        metavar="true",
        help="batching is always enabled",
    )
    for name in _OF_LOGGER:
        _add(group, name, metavar="TEXT", help="as for the agent's logger; for --log-url")
    for name in (*IDLE, *REFUSED):
        _add(group, name, nargs="?", const="true", help=argparse.SUPPRESS)


def configuration(arguments: argparse.Namespace, more: dict[Place, tuple[str, Any]]) -> Config:
    """Return the configuration of the arguments.

    Args:
        arguments: as `add_arguments` has them.
        more: keys that other flags set, with the flags' names and values.

    Raises:
        ConfigError: with every problem.
    """
    problems = [
        f"--{name}: {why}" for name, why in REFUSED.items() if _given(arguments, name) not in _OFF
    ]
    if _given(arguments, "enable-batcher") in _OFF[1:]:
        problems.append("--enable-batcher: this is nothing but a batcher, so it cannot be off")
    port = _given(arguments, "component-port") or str(COMPONENT_PORT)
    if not (port.isdecimal() and len(port) < 6 and 1 <= int(port) <= _LAST_PORT):
        words = f"a whole number from 1 to {_LAST_PORT}"
        problems.append(f'--component-port: found "{port}", but it must be {words}')
    if problems:
        raise ConfigError(*problems)
    document: dict[str, Any] = {
        "server": {"sidecar": True},
        "models": {MODEL: {"path": f"http://127.0.0.1:{port}", "policy": "eager"}},
    }
    origins: dict[Place, str] = {(*_MODEL, "path"): "--component-port"}
    if _given(arguments, "max-latency"):
        document["models"][MODEL]["policy"] = "fixed"
    values = {
        flag.place: (f"--{flag.name}", number(_given(arguments, flag.name) or str(flag.default)))
        for flag in FLAGS
        if _given(arguments, flag.name) or flag.default is not None
    }
    if _given(arguments, "log-url"):
        values |= _logging(arguments)
    for place, (origin, value) in (values | more).items():
        section = document
        for name in place[:-1]:
            section = section[name]
        section[place[-1]] = value
        origins[place] = origin
    return conclude(document, source="command line", base=Path(), origins=origins)


def ignored(arguments: argparse.Namespace) -> list[str]:
    """Return notices for the operator on flags that do nothing here."""
    return [
        f"--{name} does nothing here: it is for the agent's puller, stores or probes"
        for name in IDLE
        if _given(arguments, name)
    ]


def _logging(arguments: argparse.Namespace) -> dict[Place, tuple[str, Any]]:
    """Return what is set so that the payload log is the agent's logger, with the flags' names."""
    attributes = [
        f"{attribute}={value}"
        for name, attribute in ATTRIBUTES.items()
        if (value := _given(arguments, name))
    ]
    annotations = _listed(_given(arguments, "metadata-annotations"))
    if annotations:
        pairs = dict(text.partition("=")[::2] for text in annotations)
        attributes.append(f"annotations={json.dumps(pairs, separators=(',', ':'))}")
    port = _given(arguments, "port") or "9081"
    source = _given(arguments, "source-uri") or f"http://localhost:{port}/"
    headers = _listed(_given(arguments, "metadata-headers"))
    found: dict[str, tuple[str, Any]] = {
        "payload_log_attributes": ("--inference-service", attributes),
        "payload_log_headers": ("--metadata-headers", headers),
        "payload_log_source": ("--source-uri", source),
        "payload_log_failures": ("--log-url", False),
        "payload_log_body_bytes": ("--log-url", _LOGGED_BYTES),
    }
    authority = _given(arguments, "logger-ca-cert-file")
    if authority and _given(arguments, "log-url").startswith("https:"):
        found["payload_log_ca"] = "--logger-ca-cert-file", f"{_AUTHORITIES}/{authority}"
    return {(*_SERVER, key): value for key, value in found.items()}


def _listed(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _add(group: Any, name: str, **more: Any) -> None:
    group.add_argument(f"--{name}", f"-{name}", dest=_attribute(name), **more)


def _attribute(name: str) -> str:
    return f"agent_{name.replace('-', '_')}"


def _given(arguments: argparse.Namespace, name: str) -> str:
    return getattr(arguments, _attribute(name), None) or ""
