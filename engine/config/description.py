"""TOML text of a configuration."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ringbatch.engine.config import chains
from ringbatch.engine.config.addresses import written
from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.dimensions import lane_bytes, request_limit_bytes
from ringbatch.engine.config.problems import Place, heading
from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.shm.model_spec import FIRST_VERSION

_VERSIONS: Final = "versions"
_VERSIONS_KEY: Final = "default_version"
_DERIVED: Final = {"max_request_bytes": request_limit_bytes, "lane_bytes": lane_bytes}
_ABSENT: Final = {
    "grpc_port": "none",
    "unix_socket": "none",
    "unix_socket_group": "the engine's own",
    "grpc_unix_socket": "none",
    "control_port": "no metrics, and no page",
    "agent_check_port": "no answers to HAProxy's agent-check",
    "access_log_slower_than_ms": "1000, or ten times the median",
    "trace_endpoint": "nothing is traced",
    "payload_log": "no payload is kept",
    "payload_log_source": "/ringbatch/ and the engine's name",
    "payload_log_ca": "those of the system",
    "tls_certificate": "no TLS",
    "tls_key": "no TLS",
    "tls_client_ca": "clients need no certificate",
    "control_tls_certificate": "tls_certificate",
    "control_tls_key": "tls_key",
    "api_keys_file": "clients need no key",
    "app": "none",
    "pass_through": "the server of the runtime http, where all models are on one",
    "threads": "the CPUs divided by the workers",
    "target_wait_ms": "what three batches take",
    "upstream_ca": "those of the system",
    "upstream_certificate": "none",
    "upstream_key": "none",
    "worker_memory_bytes": "no limit",
    "frontend_cpus": "those of placement",
    "spare_workers": "as many as are configured, at least 2",
    "warm_up_file": "values are made up",
    "lengths_input": "none",
    "ray_placement_group": "none",
    "ray_workers": "none",
}
"""Meaning of a key without a value."""


def describe(config: Config, *, defaults: bool = True) -> str:
    """Return the configuration as TOML, which reads back as the same one.

    Without defaults, the text has only the values that differ from them.
    """
    lines = ["[server]", *_described(config.server, defaults)]
    for model in config.models:
        lines += ["", *_headed(model, config, defaults)]
    for chain in config.chains:
        lines += ["", heading(("models", chain.name)), *chains.described(chain)]
    return "\n".join(lines)


def _headed(model: ModelConfig, config: Config, defaults: bool) -> list[str]:
    place: Place = ("models", model.name)
    described = list(_described(model, defaults))
    versions = [other.version for other in config.models if other.name == model.name]
    if versions == [FIRST_VERSION]:
        return [heading(place), *described]
    of_all = [line for line in described if line.startswith(_VERSIONS_KEY)]
    own = [line for line in described if line not in of_all]
    first = [heading(place), *of_all, ""] if model.version == versions[0] else []
    return [*first, heading((*place, _VERSIONS, model.version)), *own]


def _described(section: ServerConfig | ModelConfig, defaults: bool) -> Iterable[str]:
    for key, setting in settings(type(section)).items():
        value = getattr(section, key)
        if value == setting.default and not defaults:
            continue
        if value is not None:
            text = written(value) if isinstance(value, Path) or key == "path" else value
            unused = key == "max_latency_ms" and getattr(section, "policy", "") == "eager"
            remark = "  # has no effect under policy eager" if unused else ""
            yield f"{key} = {json.dumps(text, ensure_ascii=False)}{remark}"
        elif key in _DERIVED and isinstance(section, ServerConfig):
            yield f"# {key} = {_DERIVED[key](section)}, derived"
        elif key == "batch_timeout_s" and isinstance(section, ModelConfig):
            yield f"# {key} = {section.batch_limit_s}, derived"
        elif key != _VERSIONS_KEY:
            yield f"# {key}: {_ABSENT.get(key, 'not set')}"
