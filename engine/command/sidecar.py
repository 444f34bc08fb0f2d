"""``ringbatch sidecar``: a configuration from the flags of KServe's agent, whose place it takes.

The agent's flags mean what they mean there. Those that only say whom its logger or its model puller
serves do nothing here and are said to; those that would have it log requests or pull models are
refused. Go's way of writing flags, ``-port=9081``, is understood as well.
"""

import argparse
from pathlib import Path
from typing import Any, Final, NamedTuple

from ringbatch.engine.command.engine_arguments import number
from ringbatch.engine.config.document import ConfigError, Place, conclude
from ringbatch.engine.config.settings import Config

MODEL: Final = "model"
"""What the one model is called where it must have a name; requests have names of their own."""

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
"""What can be set beside the flags of KServe's agent."""
EXAMPLES: Final = """\
Takes predictions of any model, POST to any path that ends in :predict, puts those that may share a
batch together, and sends them to the server beside it. Everything else is passed on as it is.
Readiness, at /v2/health/ready and for the probes of Kubernetes, is that of both.

Where --max-latency is given, the oldest request of a batch waits that long for others to join it,
as with KServe's agent (policy fixed). Without it no batch waits while fewer than --workers are at
the server (policy eager).

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
        default: of the agent's; None where ours holds.
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
        "milliseconds that the oldest request of a batch waits at most for others to join it",
    ),
)
COMPONENT_PORT: Final = 8080
IDLE: Final = (
    "component",
    "config-dir",
    "endpoint",
    "inference-service",
    "log-marshaller",
    "log-mode",
    "logger-ca-cert-file",
    "logger-tls-skip-verify",
    "metadata-annotations",
    "metadata-headers",
    "model-dir",
    "namespace",
    "probe-period",
    "source-uri",
)
"""Flags of the agent's that have no meaning without its logger or its puller, or with probes that
are answered at once."""
REFUSED: Final = {
    "log-url": "requests are not logged to another server here",
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
    _add(group, "enable-batcher", nargs="?", const="true", help="it always is enabled")
    for name in (*IDLE, *REFUSED):
        _add(group, name, nargs="?", const="true", help=argparse.SUPPRESS)


def configuration(arguments: argparse.Namespace, more: dict[Place, tuple[str, Any]]) -> Config:
    """The configuration that the arguments ask for.

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
    for place, (origin, value) in (values | more).items():
        section = document
        for name in place[:-1]:
            section = section[name]
        section[place[-1]] = value
        origins[place] = origin
    return conclude(document, source="command line", base=Path(), origins=origins)


def ignored(arguments: argparse.Namespace) -> list[str]:
    """What to tell the operator of flags that do nothing here."""
    return [
        f"--{name} does nothing here: it is for the agent's logger, puller or probes"
        for name in IDLE
        if _given(arguments, name)
    ]


def _add(group: Any, name: str, **more: Any) -> None:
    group.add_argument(f"--{name}", f"-{name}", dest=_attribute(name), **more)


def _attribute(name: str) -> str:
    return f"agent_{name.replace('-', '_')}"


def _given(arguments: argparse.Namespace, name: str) -> str:
    return getattr(arguments, _attribute(name), None) or ""
