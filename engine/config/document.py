"""Configuration document: makes a checked, frozen configuration of TOML, or reports all problems.

`conclude` reports every problem of a document in one `ConfigError`, because one start for each
mistake tries patience. What a key may hold stands in `ringbatch.engine.config.settings`; here are
the rules between keys, and the words.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from itertools import filterfalse
from pathlib import Path
from typing import Any, Final

from ringbatch.engine.config import (
    chains,
    runtime_rules,
    server_rules,
    shape_rules,
    text_rules,
    unknown_keys,
    upstream_rules,
    worker_places,
)
from ringbatch.engine.config.addresses import lacks_scheme, unix_path
from ringbatch.engine.config.definitions import Setting, settings
from ringbatch.engine.config.dimensions import REQUEST_BYTES
from ringbatch.engine.config.kinds import (
    OF_DIRECTORIES,
    RUNTIMES,
    VERSION_WORDS,
    is_version,
    runtime_of,
)
from ringbatch.engine.config.model_names import NAME_WORDS, is_model_name
from ringbatch.engine.config.paths import absence, absolute, resolved
from ringbatch.engine.config.problems import (
    ConfigError,
    Place,
    Problems,
    heading,
    key_text,
    quoted,
    valued,
)
from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.config.toml_file import read
from ringbatch.shm.engine_name import UNNAMED, engine_name_of
from ringbatch.shm.layout import MAX_WORKERS
from ringbatch.shm.model_spec import FIRST_VERSION
from ringbatch.shm.texts import ENCODER_MODULES, GENERATION_CONFIG, GENERATOR_MODEL

__all__ = [
    "ALIASES",
    "BUNDLED_NAME",
    "BUNDLED_PATH",
    "MODEL_FILES",
    "SERVER_FILES",
    "Config",
    "ConfigError",
    "ModelConfig",
    "Place",
    "ServerConfig",
    "bundled",
    "bundled_document",
    "conclude",
    "load",
    "read",
]

BUNDLED_NAME: Final = "digits"
BUNDLED_PATH: Final = Path(__file__).resolve().parents[1] / "demo" / "digits.py"

ALIASES: Final = {
    "maxBatchSize": "max_batch_size",
    "maxLatency": "max_latency_ms",
    "timeout": "timeout_s",
}
"""KServe's spellings of a model's keys; the units are the same."""

_VERSIONS: Final = "versions"
_VERSIONS_KEY: Final = "default_version"
_SECTIONS: Final = ("server", "models")
_HOMES: Final = {"[server]": ServerConfig, "[models.NAME]": ModelConfig}
SERVER_FILES: Final = frozenset(
    {
        "tls_certificate",
        "tls_key",
        "tls_client_ca",
        "control_tls_certificate",
        "control_tls_key",
        "api_keys_file",
        "payload_log_ca",
    }
)
"""Keys of the server whose values are paths; relative ones start beside the document."""
MODEL_FILES: Final = ("warm_up_file", *upstream_rules.FILES)
"""Keys of a model whose values are paths, beside `path` itself."""
_ENDING_WORDS: Final = (
    "a file whose ending says what runs it, "
    + ", ".join(f"{' or '.join(endings)} ({name})" for name, endings in RUNTIMES.items() if endings)
    + ", or a directory with a tokenizer.json (text, or generator if it has a model.py or a "
    + "generation_config.json); runtime "
    "says what runs a file of another ending, and a model.py can serve whatever Python can load"
)
_ADDRESS_WORDS: Final = "the address of a model server, http://HOST:PORT, for the runtime http"
_NO_WAIT_WORDS: Final = "has no effect, because policy is eager; it is for policy fixed"


def load(path: Path) -> Config:
    """Return the configuration in a TOML file.

    Raises:
        ConfigError: with every problem, or with the reason why there is no document to check.
    """
    return conclude(read(path), source=str(path), base=path.parent, name=engine_name_of(path))


def bundled_document(name: str = BUNDLED_NAME) -> dict[str, Any]:
    """Return the raw document that serves the bundled digits model and sets nothing else."""
    return {"models": {name: {"path": str(BUNDLED_PATH)}}}


def bundled() -> Config:
    """Return the configuration of ``ringbatch serve`` without arguments."""
    return conclude(bundled_document(), source="bundled model", base=BUNDLED_PATH.parent)


def _with_ending(base: Path, path: object) -> str | None:
    """Return the file that is meant if its ending was left out."""
    if not isinstance(path, str) or os.path.exists(base / path):
        return None
    every = (path + ending for endings in RUNTIMES.values() for ending in endings)
    return next((whole for whole in every if os.path.isfile(base / whole)), None)


def conclude(
    document: Mapping[str, Any],
    *,
    source: str,
    base: Path,
    name: str = UNNAMED,
    origins: Mapping[Place, str] | None = None,
    is_file: Callable[[Path], bool] = os.path.isfile,
) -> Config:
    """Return the checked configuration of a raw document.

    Args:
        document: as read from TOML, with the values of flags laid over it.
        source: names the document in problems.
        base: relative model paths start here.
        name: the engine's, if the document has none.
        origins: for values from elsewhere, the words that stand in place of `source` and the
            key; a flag's own name.
        is_file: whether there is a file at a path.

    Raises:
        ConfigError: with every problem of the document.
    """
    report = Problems(source, origins or {})
    for key in (key for key in document if key not in _SECTIONS):
        report.add((key,), _unknown(key, _SECTIONS))
    server = _server({"name": name, **_table(document, ("server",), report)}, base, is_file, report)
    sections = _table(document, ("models",), report)
    if not sections and document.get("models", {}) == {}:
        report.add(("models",), "there is no model; add a section [models.NAME] with a path")
    for name in filterfalse(is_model_name, sections):
        report.add(("models", name), f"found {quoted(name)}, but {NAME_WORDS}")
    plain = [name for name, section in sections.items() if not chains.is_chain(section)]
    models = [m for n in plain for m in _versions(n, sections, base, is_file, report)]
    chained = chains.read_all(sections, models, report)
    total = sum(
        worker_places.most(model.get("workers", 0))
        + worker_places.most(model.get("ray_workers") or 0)
        + model.get("spares", 0)
        for model in models
    )
    if total > MAX_WORKERS:
        report.add(("models",), f"{total} workers in all, but at most {MAX_WORKERS} are possible")
    for model in models:
        if words := upstream_rules.own_address(model.get("path"), server):
            name, version = model["name"], model["version"]
            of_version = (_VERSIONS, version) if _VERSIONS in sections[name] else ()
            report.add(("models", name, *of_version, "path"), words)
    if server.get("sidecar") and (words := upstream_rules.sidecar_problem(server, models)):
        report.add(("server", "sidecar"), words)
    if report.problems:
        raise ConfigError(*report.problems)
    configs = tuple(ModelConfig(**model) for model in models)
    return Config(
        server=ServerConfig(**server),
        models=configs,
        chains=chained,
        notices=tuple(report.notices),
    )


def _server(
    raw: Mapping[str, Any], base: Path, is_file: Callable[[Path], bool], report: Problems
) -> dict[str, Any]:
    values = _section(ServerConfig, raw, ("server",), {}, report)
    # A wrong one is in the report already.
    lane, request = values.get("lane_bytes"), values.get("max_request_bytes", 0)
    request = REQUEST_BYTES if request is None else request
    if lane is not None and lane < 2 * request:
        bound = valued("max_request_bytes", request, raw)
        words = f"at least twice max_request_bytes, which is {bound}"
        report.refuse(("server", "lane_bytes"), str(lane), words)
    _check_ports(values, raw, report)
    for key in sorted(SERVER_FILES):
        if values.get(key) is not None:
            values[key] = absolute(base / values[key])
            if not is_file(values[key]):
                words = f"a file that exists{absence(values[key], raw[key])}"
                report.refuse(("server", key), quoted(raw[key]), words)
    place = values.get("payload_log")
    if place is not None and "://" not in place:
        values["payload_log"] = str(absolute(base / place))
    if values.get("app") is not None:
        values["app"] = str(absolute(base / values["app"]))
    for key, words in server_rules.problems(values):
        report.add(("server", key), words)
    return values


def _check_ports(values: Mapping[str, Any], raw: Mapping[str, Any], report: Problems) -> None:
    taken: dict[int, str] = {}
    listens = () if unix_path(values.get("host")) is not None else ("port",)
    for key in (*listens, "grpc_port", "control_port", "agent_check_port"):
        port = values.get(key)
        if port and port in taken:
            other = taken[port]
            words = f"another than {other}, which is {valued(other, port, raw)}"
            report.refuse(("server", key), str(port), words)
        elif port:
            taken[port] = key


def _versions(
    name: str,
    sections: Mapping[str, Any],
    base: Path,
    is_file: Callable[[Path], bool],
    report: Problems,
) -> list[dict[str, Any]]:
    """Return the values of every version of a model."""
    place: Place = ("models", name)
    shared = dict(_table(sections, place, report))
    if not isinstance(sections[name], dict):
        return []
    chosen = shared.get(_VERSIONS_KEY)
    if _VERSIONS not in shared:
        if is_version(chosen) and chosen != FIRST_VERSION:
            words = f"{FIRST_VERSION}, or versions must be given, each in a section of its own"
            report.refuse((*place, _VERSIONS_KEY), quoted(chosen), words)
        return [_model(name, FIRST_VERSION, shared, place, base, is_file, report)]
    versions = _table(shared, (*place, _VERSIONS), report)
    if not versions and shared[_VERSIONS] == {}:
        report.add((*place, _VERSIONS), "there is none; add a section with the name of one")
    del shared[_VERSIONS]
    if isinstance(chosen, str) and chosen not in versions:
        words = f"one of the versions, {', '.join(map(key_text, versions))}"
        report.refuse((*place, _VERSIONS_KEY), quoted(chosen), words)
    models = []
    for version in versions:
        own_place = (*place, _VERSIONS, version)
        if not is_version(version):
            words = f"found {quoted(version)}, but a version's name must be {VERSION_WORDS}"
            report.add(own_place, words)
        own = _table(versions, own_place, report)
        if _VERSIONS_KEY in own:
            report.add((*own_place, _VERSIONS_KEY), f"is for all versions, in {heading(place)}")
        written = {ALIASES.get(key, key) for key in own}
        inherited = {k: v for k, v in shared.items() if ALIASES.get(k, k) not in written}
        for key in inherited:
            report.moved((*own_place, key), (*place, key))
        models.append(
            _model(name, version, inherited | dict(own), own_place, base, is_file, report)
        )
    return models


def _model(
    name: str,
    version: str,
    raw: Mapping[str, Any],
    place: Place,
    base: Path,
    is_file: Callable[[Path], bool],
    report: Problems,
) -> dict[str, Any]:
    aliases = {alias: key for alias, key in ALIASES.items() if alias in raw}
    values = _section(ModelConfig, raw, place, aliases, report)
    values |= {"name": name, "version": version}
    if "max_latency_ms" not in raw.keys() | aliases.values() and "timeout_s" in values:
        # A short timeout alone is no contradiction.
        values["max_latency_ms"] = min(values["max_latency_ms"], values["timeout_s"] * 1000)
    _check_wait(values, raw, place, aliases, report)
    _check_part_limits(values, raw, place, aliases, report)
    if "max_batch_size" not in raw.keys() | aliases.values() and values.get("allowed_batch_sizes"):
        values["max_batch_size"] = values["allowed_batch_sizes"][-1]
    for key in MODEL_FILES:
        if values.get(key) is not None:
            values[key] = absolute(base / values[key])
            if not is_file(values[key]):
                words = f"a file that exists{absence(values[key], raw[key])}"
                report.refuse((*place, key), quoted(raw[key]), words)
    _resolve_path(values, raw, place, base, is_file, report)
    for key, words in shape_rules.problems(values):
        report.add((*place, key), words)
    for key, words in shape_rules.notices(values, raw):
        report.notice((*place, key), words)
    return values


def _runtime_of_directory(path: Path, is_file: Callable[[Path], bool]) -> str:
    """Return what runs a directory with a tokenizer: a generator of texts, or an encoder.

    A directory of sentence-transformers is an encoder, even if its network had another task.
    """
    generates = is_file(path / GENERATION_CONFIG) and not is_file(path / ENCODER_MODULES)
    return "generator" if generates or is_file(path / GENERATOR_MODEL) else "text"


def _resolve_path(
    values: dict[str, Any],
    raw: Mapping[str, Any],
    place: Place,
    base: Path,
    is_file: Callable[[Path], bool],
    report: Problems,
) -> None:
    """Make the model's path absolute, and find out what runs it."""
    if "path" in values:
        if "runtime" in values:
            found = values["runtime"] or runtime_of(values["path"])
            if found is None and os.path.isdir(base / values["path"]):
                found = _runtime_of_directory(base / values["path"], is_file)
            values["runtime"] = runtime = found
            loader = runtime_of(values["path"]) if runtime == "ray" else runtime
            if runtime is None or loader is None:
                bare = isinstance(raw["path"], str) and lacks_scheme(raw["path"])
                wanted = f"http://{raw['path']} for a model server there" if bare else _ENDING_WORDS
                if str(values["path"]).endswith(".toml"):
                    wanted = "a model; a configuration is given with --config"
                elif (whole := _with_ending(base, raw["path"])) is not None:
                    wanted = f"a file with its ending; {whole} is there"
                elif not bare and not is_file(missing := resolved(base / values["path"])):
                    wanted = f"a file that exists{absence(missing, raw['path'])}"
                report.refuse((*place, "path"), quoted(raw["path"]), wanted)
                return
            for key, words in runtime_rules.problems(runtime, values):
                report.add((*place, key), words)
            if isinstance(values["path"], str) != (runtime == "http"):
                words = _ADDRESS_WORDS if runtime == "http" else f"a file for the runtime {runtime}"
                report.refuse((*place, "path"), quoted(raw["path"]), words)
                return
            if runtime == "text":
                values |= text_rules.shape(values, raw)
            if runtime == "http" and "workers" not in raw:
                values["workers"] = upstream_rules.workers(values["path"])
            for key, words in upstream_rules.problems(values) if runtime == "http" else ():
                report.add((*place, key), words)
        if isinstance(values["path"], str):
            return
        values["path"] = resolved(base / values["path"])
        is_directory = values.get("runtime") in OF_DIRECTORIES
        if not (os.path.isdir(values["path"]) if is_directory else is_file(values["path"])):
            there = absence(values["path"], raw["path"])
            expected = "directory" if is_directory else "file"
            report.refuse((*place, "path"), quoted(raw["path"]), f"a {expected} that exists{there}")


def _check_wait(
    values: Mapping[str, Any],
    raw: Mapping[str, Any],
    place: Place,
    aliases: Mapping[str, str],
    report: Problems,
) -> None:
    latency_ms, timeout_s = values.get("max_latency_ms"), values.get("timeout_s")
    written = {key: alias for alias, key in aliases.items()}
    latency, timeout = (written.get(key, key) for key in ("max_latency_ms", "timeout_s"))
    if latency in raw and values.get("policy") == "eager":
        report.notice((*place, latency), _NO_WAIT_WORDS)
    if latency_ms is None or timeout_s is None or latency_ms <= timeout_s * 1000:
        return
    found = valued(latency, latency_ms, raw, " ms")
    words = f"at most {timeout}, which is {valued(timeout, timeout_s, raw, ' s')}"
    report.refuse((*place, latency), found, words)


def _check_part_limits(
    values: Mapping[str, Any],
    raw: Mapping[str, Any],
    place: Place,
    aliases: Mapping[str, str],
    report: Problems,
) -> None:
    timeout_s = values.get("timeout_s")
    timeout = next((alias for alias, key in aliases.items() if key == "timeout_s"), "timeout_s")
    for key in ("first_part_timeout_s", "part_gap_timeout_s"):
        limit_s = values.get(key)
        if limit_s is not None and timeout_s is not None and limit_s > timeout_s:
            words = f"at most {timeout}, which is {valued(timeout, timeout_s, raw, ' s')}"
            report.refuse((*place, key), valued(key, limit_s, raw, " s"), words)


def _section(
    section: type[ServerConfig] | type[ModelConfig],
    raw: Mapping[str, Any],
    place: Place,
    aliases: Mapping[str, str],
    report: Problems,
) -> dict[str, Any]:
    """Return a section's legal values and the defaults of absent keys; of a bad one, neither."""
    known = settings(section)
    values = {key: s.default for key, s in known.items() if s.default is not MISSING}
    for key, value in raw.items():
        setting = known.get(aliases.get(key, key))
        if setting is None:
            report.add((*place, key), _unknown_in(section, key, value))
        elif setting.key != key and setting.key in raw:
            report.add((*place, key), f"means {setting.key}, which is given as well; keep one")
        elif setting.kind.accepts(value):
            values[setting.key] = setting.kind.store(value)
        else:
            values.pop(setting.key, None)
            report.refuse((*place, key), quoted(value), setting.kind.words)
    for setting in _missing(known.values(), raw):
        report.add((*place, setting.key), f"is missing; it must be {setting.kind.words}")
    return values


def _missing(known: Iterable[Setting], raw: Mapping[str, Any]) -> Iterable[Setting]:
    return (s for s in known if s.default is MISSING and s.key not in raw)


def _table(parent: Mapping[str, Any], place: Place, report: Problems) -> Mapping[str, Any]:
    """Return the table at a place; an empty one, and a problem, if it is no table."""
    value = parent.get(place[-1], {})
    if isinstance(value, dict):
        return value
    headers = {("models",): ("models", "NAME"), (*place[:2], _VERSIONS): (*place, "VERSION")}
    header = heading(headers.get(place, place))
    report.refuse(place, quoted(value), f"a table, with the header {header}")
    return {}


def _unknown_in(section: type[ServerConfig] | type[ModelConfig], key: str, value: Any) -> str:
    if section is ServerConfig:
        return _unknown(key, tuple(settings(ServerConfig)))
    if isinstance(value, dict) and not unknown_keys.is_of_another_server(key):
        return 'unknown key; a model whose name has a dot needs quotes, such as [models."a.b"]'
    return _unknown(key, (*settings(ModelConfig), *ALIASES))


def _unknown(key: str, known: tuple[str, ...]) -> str:
    meant = key if key in ALIASES else key.replace("-", "_").lower()
    for header, section in _HOMES.items():
        if meant not in known and ALIASES.get(meant, meant) in settings(section):
            subject = "it" if meant == key else meant
            return f"unknown key here; {subject} belongs in a section {header}"
    return unknown_keys.words(key, known, listed="`ringbatch serve --help`, as flags")
