"""What can be set of a model's file and of its batches; see `ringbatch.engine.config.settings`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from ringbatch.engine.config.kinds import (
    FILE,
    MODEL,
    NAME,
    PADDINGS,
    RUNTIMES,
    SWITCH,
    VERSION,
    RuntimeName,
    ascending,
    choice,
    number,
    whole,
)
from ringbatch.engine.config.serving import DAY_S
from ringbatch.shm.descriptors import TASK_WORDS
from ringbatch.shm.model_spec import FIRST_VERSION

LARGEST_BATCH: Final = TASK_WORDS // 4
"""Two batches of single instances fit into a task ring, with room to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedConfig:
    """Of a section ``[models.NAME]``: what is run, and how its batches are formed."""

    name: str
    version: str = FIRST_VERSION
    default_version: Annotated[
        str | None,
        VERSION,
        "which of several versions serves requests that name none; by default the highest",
    ] = None
    runtime: Annotated[
        RuntimeName | None,
        choice(*RUNTIMES),
        "what runs the model file; by default its ending decides: python for .py, onnx for .onnx, "
        "sklearn for .skops, .pkl and .joblib, xgboost for .ubj and .json, lightgbm for .txt, "
        "catboost for .cbm, openvino for .xml, torch for .pt2, .pt, .pth and .ts; "
        "text for a directory; http for an address; ray has a Ray cluster run it, as its ending "
        "says",
    ] = None
    path: Annotated[
        Path | str,
        MODEL,
        "the model file, or the directory of a model of texts; a relative path starts beside the "
        "configuration file; or the address of a "
        "model server that is asked with whole batches, http://HOST:PORT or https://HOST:PORT, "
        "with the path of its predictions where that is not the usual one; or a list of addresses, "
        "each of which is asked, as is each address that a name has",
    ]
    max_batch_size: Annotated[
        int,
        whole(0, LARGEST_BATCH),
        "instances in the largest batch; "
        "0 for a model without a batch dimension, which runs each instance alone",
    ] = 32
    allowed_batch_sizes: Annotated[
        tuple[int, ...],
        ascending(1, LARGEST_BATCH, "[1, 4, 16]"),
        "numbers of instances that batches are padded to, the last being max_batch_size; by "
        "default batches are not padded",
    ] = ()
    max_batch_elements: Annotated[
        int,
        whole(0, 1 << 40),
        "elements of the largest input in one batch, padding included; 0 for no bound; for texts "
        "see Texts",
    ] = 0
    max_batch_cost: Annotated[
        float,
        number(1 << 40, zero=True),
        "what one run may cost of a Python model without inputs, by the function cost(instance) of "
        "its file; 0 for no bound",
    ] = 0.0
    pad_variable_length: Annotated[
        bool,
        SWITCH,
        "pad dimensions of any size (-1), so that requests of unequal length share batches",
    ] = False
    length_buckets: Annotated[
        tuple[int, ...],
        ascending(1, 1 << 30, "[32, 64, 128]"),
        "sizes that dimensions of any size are padded to; requests share batches with those of "
        "their bucket; by default each batch is padded to its longest instance; for texts see "
        "Texts",
    ] = ()
    padding_values: Annotated[
        tuple[str, ...],
        PADDINGS,
        'numbers that inputs are padded with, such as ["ids=1"]; 0 for every other input',
    ] = ()
    lengths_input: Annotated[
        str | None,
        NAME,
        "input of the model, INT32 or INT64 [], that is fed with the true length of each instance; "
        "clients do not send it",
    ] = None
    load_timeout_s: Annotated[
        float,
        number(DAY_S, zero=False),
        "seconds that a worker may take to open its model file, again to load the model, and for "
        "warm-up beyond warm_up_s, before it is taken for hung and ended",
    ] = 600.0
    warm_up: Annotated[
        Literal["required", "try", "off"],
        choice("required", "try", "off"),
        "run every batch size before the first request: required, a model that fails at one is not "
        "served; try, it is served all the same, with a warning; off, nothing is run",
    ] = "required"
    warm_up_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds that warm-up may take; what would take longer is left out",
    ] = 30.0
    warm_up_length: Annotated[
        int,
        whole(1, 1 << 30),
        "size in warm-up of dimensions of any size, where length_buckets does not say it",
    ] = 16
    warm_up_file: Annotated[
        Path | None,
        FILE,
        "instances to warm up with, JSON as a V1 request; by default they are made up from the "
        "model's inputs",
    ] = None
    max_latency_ms: Annotated[
        float,
        number(1000 * DAY_S, zero=True),
        "milliseconds that the oldest request of a batch waits at most for others to join it while "
        "a worker is idle, under policy fixed; has no effect under eager",
    ] = 500.0
    timeout_s: Annotated[
        float,
        number(DAY_S, zero=False),
        "seconds from a request's acceptance to its deadline",
    ] = 60.0
    batch_timeout_s: Annotated[
        float | None,
        number(DAY_S, zero=False),
        "seconds that one run of a batch may take before its worker is taken for hung and "
        "replaced, 5 s later where servers or actors are asked; by default a quarter of timeout_s, "
        "and no less than 1; for the runtime http timeout_s",
    ] = None
    policy: Annotated[
        Literal["eager", "fixed"],
        choice("eager", "fixed"),
        "when a batch closes: eager, as soon as a worker is idle; "
        "fixed, once one is and the batch is full or its oldest request has waited max_latency_ms",
    ] = "eager"
