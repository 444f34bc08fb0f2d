"""Rules between the settings that shape batches: each rule broken once, and kept once."""

from pathlib import Path

import pytest

from ringbatch.engine.config.description import describe
from ringbatch.engine.config.document import Config, ConfigError, conclude
from ringbatch.engine.config.settings import ModelConfig


def concluded(**keys: object) -> ModelConfig:
    document = {"models": {"m": {"path": "m.py"} | keys}}
    config: Config = conclude(document, source="it", base=Path("/"), is_file=lambda _path: True)
    return config.models[0]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"max_batch_size": 32, "allowed_batch_sizes": [1, 8]},
            "allowed_batch_sizes: found 8 as the last, but it must be max_batch_size, which is 32",
        ),
        (
            {"allowed_batch_sizes": [4, 1]},
            "allowed_batch_sizes: found [4, 1], but it must be a list such as [1, 4, 16], of "
            "ascending whole numbers from 1 to 4096",
        ),
        ({"allowed_batch_sizes": [0, 1]}, "ascending whole numbers from 1 to 4096"),
        ({"allowed_batch_sizes": [1, True]}, "ascending whole numbers"),
        ({"allowed_batch_sizes": 4}, "ascending whole numbers"),
        (
            {"length_buckets": [32]},
            "length_buckets: is for pad_variable_length, which is false",
        ),
        ({"padding_values": ["x=1"]}, "padding_values: is for pad_variable_length"),
        ({"lengths_input": "n"}, "lengths_input: is for pad_variable_length"),
        ({"padding_values": ["x"], "pad_variable_length": True}, 'a list such as ["ids=1"]'),
        ({"padding_values": ["x=one"], "pad_variable_length": True}, 'a list such as ["ids=1"]'),
        (
            {"max_batch_size": 0, "pad_variable_length": True},
            "pad_variable_length: is for batches, but max_batch_size is 0",
        ),
        ({"max_batch_size": 0, "max_batch_elements": 9}, "max_batch_elements: is for batches"),
        ({"max_batch_size": 0, "max_batch_cost": 9}, "max_batch_cost: is for batches"),
        ({"max_batch_cost": -1}, "max_batch_cost: found -1"),
        (
            {"runtime": "http", "path": "http://a:1", "max_batch_elements": 9},
            "max_batch_elements: is for models that run here",
        ),
        ({"cpus": ["0", "1"]}, "cpus: found 2, but it must be at most workers, which is 1"),
        ({"cpus": ["0-"]}, 'a list such as ["0-3", "4-7"] or ["numa:0"]'),
        ({"cpus": "0"}, 'a list such as ["0-3", "4-7"]'),
        (
            {"path": "m.onnx", "device": "cuda:0", "devices": ["cuda:1"]},
            "devices: says the same as device; keep one",
        ),
        ({"path": "m.onnx", "devices": ["gpu"]}, 'a list such as ["cuda:0", "cuda:1"]'),
        (
            {"path": "m.ubj", "devices": ["cuda:0"]},
            "devices: is for the runtimes generator, onnx, python, text and torch",
        ),
        ({"warm_up_s": -1}, "warm_up_s: found -1"),
    ],
)
def test_contradictory_keys_are_refused(keys: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        concluded(**keys)
    assert words in str(caught.value)


def test_the_largest_allowed_size_is_the_cap() -> None:
    model = concluded(allowed_batch_sizes=[1, 8])
    assert (model.max_batch_size, model.allowed_batch_sizes) == (8, (1, 8))
    assert concluded(allowed_batch_sizes=[1, 8], maxBatchSize=8) == model


def test_all_keys_may_be_set_at_once() -> None:
    model = concluded(
        path="m.onnx",
        allowed_batch_sizes=[1, 4],
        max_batch_elements=4096,
        pad_variable_length=True,
        length_buckets=[16, 64],
        padding_values=["ids=1", "x=-0.5"],
        lengths_input="n",
        warm_up_file="warm.json",
        warm_up_length=8,
        workers=3,
        devices=["cuda:0", "cuda:1"],
        cpus=["0-3", "numa:1"],
    )
    assert model.padding_values == ("ids=1", "x=-0.5")
    assert model.warm_up_file == Path("/warm.json")
    assert "length_buckets = [16, 64]" in describe(
        conclude(
            {
                "models": {
                    "m": {"path": "m.py", "pad_variable_length": True, "length_buckets": [16, 64]}
                }
            },
            source="it",
            base=Path("/"),
            is_file=lambda _path: True,
        )
    )


def test_a_file_for_warm_up_must_be_there() -> None:
    with pytest.raises(ConfigError, match=r"warm_up_file: .* a file that exists"):
        conclude(
            {"models": {"m": {"path": "m.py", "warm_up_file": "no.json"}}},
            source="it",
            base=Path("/"),
            is_file=lambda path: path.suffix == ".py",
        )
