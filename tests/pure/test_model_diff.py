"""Difference between served and wanted models, as changes to make."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.config.settings import ModelConfig, ServerConfig
from ringbatch.engine.supervisor.model_diff import (
    LIVE,
    Change,
    UnfitSize,
    compare,
    differing,
    must_load,
    with_batch_size,
)

BASE = ModelConfig(name="m", runtime="python", path=Path("/m.py"))
OTHERS: dict[str, Any] = {
    "allowed_batch_sizes": (8, 32),
    "answers": ("y",),
    "autocast": "BF16",
    "batch_timeout_s": 2.0,
    "channels_last": True,
    "class_names": ("a",),
    "columns": "named",
    "cpus": ("0",),
    "cuda_graphs": "off",
    "default_version": "1",
    "device": "cuda:0",
    "devices": ("cuda:0",),
    "first_part_timeout_s": 5.0,
    "forward_headers": (),
    "inputs": ("x FP32 [2]",),
    "iterations": 3,
    "headers": ("x-tenant",),
    "truncate": False,
    "isolate_errors": True,
    "kserve_errors": True,
    "length_buckets": (16,),
    "lengths_input": "lengths",
    "load_timeout_s": 9.0,
    "max_batch_cost": 9.0,
    "max_joining_rows": 9,
    "max_batch_elements": 9,
    "max_batch_size": 64,
    "max_latency_ms": 7.0,
    "max_queue_wait_s": 2.0,
    "nan_answers": "refuse",
    "outputs": ("y FP32 [2]",),
    "pad_variable_length": True,
    "padding_values": ("x=1",),
    "part_gap_timeout_s": 2.0,
    "stream_stall_s": 5.0,
    "path": Path("/other.py"),
    "policy": "fixed",
    "protocol": "v2",
    "ray_address": "10.0.0.1:6379",
    "ray_cpus": 2.0,
    "ray_gpus": 1.0,
    "ray_keep_s": 60.0,
    "ray_namespace": "staging",
    "ray_placement_group": "group",
    "ray_resources": ("tpu=1",),
    "ray_scheduling": "default",
    "ray_workers": 2,
    "retry": "always",
    "runtime": "sklearn",
    "scale_down_after_s": 30.0,
    "scale_up_after_s": 1.0,
    "spares": 1,
    "target_wait_ms": 20.0,
    "threads": 3,
    "timeout_s": 5.0,
    "trust_pickle": True,
    "trusted_types": ("a.B",),
    "upstream_ca": Path("/ca.pem"),
    "upstream_certificate": Path("/certificate.pem"),
    "upstream_key": Path("/key.pem"),
    "warm_up": "off",
    "warm_up_file": Path("/w.json"),
    "warm_up_length": 3,
    "warm_up_s": 4.0,
    "worker_memory_bytes": 1 << 30,
    "workers": 2,
}


def changed(**values: Any) -> ModelConfig:
    return replace(BASE, **values)


def same_files(_model: ModelConfig) -> bool:
    return False


def other_files(_model: ModelConfig) -> bool:
    return True


def test_every_setting_is_tried_here() -> None:
    assert set(OTHERS) == {field.name for field in fields(BASE)} - {"name", "version"}
    assert set(OTHERS) >= LIVE


@pytest.mark.parametrize("key", sorted(OTHERS))
def test_a_setting_is_changed_live_or_by_loading_anew(key: str) -> None:
    new = changed(**{key: OTHERS[key]})
    (change,) = compare([BASE], [new], same_files)
    if key in LIVE:
        assert change == Change("m", adjust=(new,))
    else:
        assert change == Change("m", load=(new,))


def test_an_unchanged_model_is_left_alone_unless_its_file_has_changed() -> None:
    assert compare([BASE], [BASE], same_files) == []
    assert compare([BASE], [BASE], other_files) == [Change("m", load=(BASE,))]


@pytest.mark.parametrize(
    ("old", "new", "loads"),
    [
        ({"max_batch_size": 8}, {"max_batch_size": 4}, False),
        ({"max_batch_size": 8}, {"max_batch_size": 16}, False),
        ({"max_batch_size": 8}, {"max_batch_size": 0}, True),
        ({"max_batch_size": 0}, {"max_batch_size": 1}, True),
        ({"runtime": "onnx", "max_batch_size": 8}, {"max_batch_size": 16}, True),
        ({"runtime": "onnx", "max_batch_size": 8}, {"max_batch_size": 4}, False),
        ({"runtime": "torch", "max_batch_size": 8}, {"max_batch_size": 16}, True),
        ({"runtime": "http"}, {"timeout_s": 3.0}, True),
        ({"runtime": "http"}, {"batch_timeout_s": 3.0}, True),
        ({"runtime": "http"}, {"policy": "fixed"}, False),
        ({"runtime": "ray"}, {"batch_timeout_s": 3.0}, True),
        ({"runtime": "ray", "max_batch_size": 8}, {"max_batch_size": 4}, True),
        ({"runtime": "ray"}, {"workers": 3}, False),
    ],
)
def test_settings_that_workers_read_at_the_start_need_new_ones(
    old: dict[str, Any], new: dict[str, Any], loads: bool
) -> None:
    before = changed(**old)
    assert must_load(before, replace(before, **new)) is loads


def test_all_versions_of_a_model_change_at_once() -> None:
    one, two, three = (changed(version=name) for name in ("1", "2", "3"))
    other = replace(BASE, name="n")
    new_two = replace(two, path=Path("/new.py"))
    new_one = replace(one, workers=2)
    assert compare([one, two, other], [new_two, three, new_one], same_files) == [
        Change("m", load=(new_two, three), adjust=(new_one,)),
        Change("n", retire=("1",)),
    ]
    assert compare([one, two], [two], same_files) == [Change("m", retire=("1",))]


models = st.builds(
    replace,
    st.just(BASE),
    name=st.sampled_from("mn"),
    version=st.sampled_from("12"),
    workers=st.integers(1, 3),
    threads=st.integers(1, 2),
)
sets_of_models = st.lists(models, max_size=4, unique_by=lambda m: (m.name, m.version))


@given(sets_of_models, sets_of_models)
def test_the_changes_lead_from_the_serving_models_to_the_wanted_ones(
    serving: list[ModelConfig], wanted: list[ModelConfig]
) -> None:
    found = {(model.name, model.version): model for model in serving}
    for change in compare(serving, wanted, same_files):
        for model in (*change.load, *change.adjust):
            assert model.name == change.name
            found[model.name, model.version] = model
        for version in change.retire:
            del found[change.name, version]
    assert found == {(model.name, model.version): model for model in wanted}


def test_settings_of_the_server_that_differ_are_named() -> None:
    assert differing(ServerConfig(), ServerConfig(port=1, frontends=3)) == {"port", "frontends"}


def test_a_change_is_described_once_it_is_done() -> None:
    change = Change("m", load=(BASE,), adjust=(changed(version="2"),), retire=("3",))
    assert change.described() == "m: version 1 loaded, version 2 adjusted, version 3 unloaded"
    assert not Change("m")


def test_a_model_is_wanted_with_another_batch_size_and_no_other_is() -> None:
    other = replace(BASE, name="n")
    found = with_batch_size([BASE, other, replace(BASE, version="2")], "m", 7)
    assert [model.max_batch_size for model in found] == [7, other.max_batch_size, 7]
    assert found[1] is other


@pytest.mark.parametrize(
    ("size", "model", "words"),
    [
        (-1, BASE, "max_batch_size: found -1, but it must be a whole number from 0"),
        (1 << 40, BASE, "max_batch_size: found "),
        (7, replace(BASE, allowed_batch_sizes=(8, 32)), "allowed_batch_sizes: found 32 as the"),
    ],
)
def test_a_batch_size_that_does_not_fit_is_refused(
    size: int, model: ModelConfig, words: str
) -> None:
    with pytest.raises(UnfitSize, match=words):
        with_batch_size([model], "m", size)
