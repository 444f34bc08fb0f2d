"""Properties of all configurations, legal or not."""

import tomllib
from typing import Any

from config_documents import BASE
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.description import describe
from ringbatch.engine.config.dimensions import lane_bytes
from ringbatch.engine.config.document import (
    ConfigError,
    ModelConfig,
    ServerConfig,
    conclude,
)
from ringbatch.engine.config.model_names import is_model_name
from ringbatch.shm.layout import Layout

legal_servers = st.fixed_dictionaries(
    {},
    optional={
        "name": st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,39}", fullmatch=True),
        "host": st.sampled_from(["127.0.0.1", "::", "localhost"]),
        "port": st.sampled_from([0, 8080]),
        "frontends": st.integers(1, 256),
        "grpc_port": st.just(0) | st.integers(1, 65535).filter(lambda port: port != 8080),
        "grpc_frontends": st.integers(1, 256),
        "client_lanes": st.integers(0, 64),
        "max_request_bytes": st.integers(1, 1 << 30),
        "max_in_flight": st.integers(0, 14).map(lambda bits: 1 << bits),
        "lane_bytes": st.integers(2 << 30, 1 << 36),
        "drain_s": st.floats(0, 86400),
        "stop_delay_s": st.floats(0, 86400),
        "hang_timeout_s": st.integers(1, 3600),
        "log_level": st.sampled_from(["debug", "info", "warning", "error"]),
        "log_format": st.sampled_from(["text", "json"]),
        "access_log": st.sampled_from(["off", "failures", "all"]),
        "access_log_sample": st.floats(0, 1),
        "access_log_slower_than_ms": st.floats(0, 1e6),
        "server_timing": st.booleans(),
        "load_report": st.booleans(),
        "control_port": st.just(0),
        "agent_check_port": st.just(0),
        "trace_sample": st.floats(0, 1),
    },
)


legal_models = (
    st.fixed_dictionaries(
        {"path": st.sampled_from(["m.py", "/a/b c.py", 'quoted".py', "back\\slash.py", "é.py"])},
        optional={
            "max_batch_size": st.integers(0, 4096),
            "max_latency_ms": st.floats(0, 60_000),
            "timeout_s": st.floats(60, 86400),
            "policy": st.sampled_from(["eager", "fixed"]),
            "workers": st.integers(1, 64),
            "threads": st.integers(1, 1024),
            "kserve_errors": st.booleans(),
        },
    )
    | st.fixed_dictionaries(
        {"path": st.sampled_from(["m.skops", "m.pkl"])},
        optional={
            "trusted_types": st.lists(st.sampled_from(["a.B", "a.b.C"]), max_size=2),
            "trust_pickle": st.booleans(),
        },
    )
    | st.fixed_dictionaries(
        {"path": st.sampled_from(["m.ubj", "m.txt", "m.cbm"])},
        optional={
            "columns": st.sampled_from(["auto", "named", "matrix"]),
            "answers": st.sampled_from([["y"], ["label", "contributions"]]),
            "iterations": st.integers(0, 100),
            "class_names": st.lists(st.sampled_from(["no", "süß"]), unique=True),
        },
    )
    | st.fixed_dictionaries(
        {
            "path": st.just("m.pt"),
            "inputs": st.just(["x FP32 [3, -1]"]),
            "outputs": st.just(["y INT64 []", "z BOOL [1]"]),
        },
        optional={
            "autocast": st.sampled_from(["off", "BF16", "FP16"]),
            "channels_last": st.booleans(),
            "cuda_graphs": st.sampled_from(["auto", "off", "required"]),
        },
    )
)


names = st.from_regex(r"[A-Za-z0-9._-]{1,128}", fullmatch=True).filter(is_model_name)


documents = st.fixed_dictionaries(
    {"models": st.dictionaries(names, legal_models, min_size=1, max_size=3)},
    optional={"server": legal_servers},
)


@given(documents)
def test_a_described_configuration_reads_back_as_itself(document: dict[str, Any]) -> None:
    config = conclude(document, source="it", base=BASE, is_file=lambda _: True)
    again = tomllib.loads(describe(config))
    assert conclude(again, source="it", base=BASE, is_file=lambda _: True) == config


@given(documents)
def test_a_legal_configuration_fits_a_segment(document: dict[str, Any]) -> None:
    config = conclude(document, source="it", base=BASE, is_file=lambda _: True)
    Layout(
        lanes=config.server.frontends + config.server.client_lanes,
        slots=config.server.max_in_flight,
        lane_bytes=lane_bytes(config.server),
        workers=sum(m.processes for m in config.models),
        models=len(config.models),
        model_table_bytes=1,
        client_lanes=config.server.client_lanes,
    )


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


keys = st.sampled_from([*settings(ServerConfig), *settings(ModelConfig), "timeout", "x"])


sections = st.dictionaries(keys, values, max_size=4) | values


@given(
    st.dictionaries(st.sampled_from(["server", "x"]), sections, max_size=2),
    st.dictionaries(st.text(max_size=3), sections, max_size=3) | values,
)
def test_any_document_is_concluded_or_refused_in_words(
    document: dict[str, Any], models: object
) -> None:
    found: tuple[str, ...] = ()
    config = None
    try:
        config = conclude(
            document | {"models": models}, source="it", base=BASE, is_file=lambda _: True
        )
    except ConfigError as error:
        found = error.problems
    assert (config is None) == bool(found)
    assert all(problem.startswith("it: ") and "\n" not in problem for problem in found)
