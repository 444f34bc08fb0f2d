"""Settings of a model's file and of its batches; see `ringbatch.engine.config.settings`."""

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
from ringbatch.shm.model_spec import FIRST_VERSION, MOST_PLACES

LARGEST_BATCH: Final = TASK_WORDS // 4
"""Two batches of single instances fit into a task ring, with room to spare."""


# The subclass makes the methods, for these fields too: to make them takes milliseconds.
@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class BatchedConfig:
    """Settings of a section ``[models.NAME]``: what is run, and how its batches are formed."""

    name: str
    version: str = FIRST_VERSION
    default_version: Annotated[
        str | None,
        VERSION,
        "version that serves requests that name none. By default the highest",
    ] = None
    runtime: Annotated[
        RuntimeName | None,
        choice(*RUNTIMES),
        "runtime of the model file. By default its ending decides: python for .py, onnx for "
        ".onnx, sklearn for .skops, .pkl and .joblib, xgboost for .ubj and .json; lightgbm for "
        ".txt, catboost for .cbm, openvino for .xml, torch for .pt2, .pt, .pth and .ts. text and "
        "generator are for directories, http for an address. ray runs the file in a Ray cluster, "
        "by its ending",
    ] = None
    path: Annotated[
        Path | str,
        MODEL,
        "model file, directory of a model of texts, or address of a model server. A relative path "
        "starts beside the configuration file. An address is http://HOST:PORT or "
        "https://HOST:PORT, with the path of its predictions if that is not the usual one. A list "
        "may hold several addresses. Batches go to each of them, and to each address that a name "
        "has",
    ]
    max_batch_size: Annotated[
        int,
        whole(0, LARGEST_BATCH),
        "instances in the largest batch. 0 is for a model without a batch dimension, which runs "
        "each instance alone. For a model in steps, the rows that a worker runs at once",
    ] = 32
    allowed_batch_sizes: Annotated[
        tuple[int, ...],
        ascending(LARGEST_BATCH, "[1, 4, 16]"),
        "batch sizes that batches are padded to, the last being max_batch_size. By default "
        "batches are not padded",
    ] = ()
    max_batch_elements: Annotated[
        int,
        whole(0, 1 << 40),
        "elements of the largest input in one batch, padding included. 0 sets no limit. For texts "
        "the default is 256 tokens",
    ] = 0
    max_batch_cost: Annotated[
        float,
        number(1 << 40, zero=True),
        "largest cost of one run of a Python model without inputs, by the function cost(instance) "
        "of its file. Of a model in steps, with or without inputs, the largest cost of the rows "
        "that a worker runs at once. 0 sets no limit",
    ] = 0.0
    max_joining_rows: Annotated[
        int,
        whole(0, MOST_PLACES),
        "rows of a model in steps that begin between two steps. Others begin after the next step. "
        "0 sets no limit",
    ] = 0
    pad_variable_length: Annotated[
        bool,
        SWITCH,
        "pad dimensions of any size (-1), so that requests of unequal length share batches",
    ] = False
    length_buckets: Annotated[
        tuple[int, ...],
        ascending(1 << 30, "[32, 64, 128]"),
        "sizes that dimensions of any size are padded to. Requests share batches with those of "
        "their bucket. By default each batch is padded to its longest instance, and texts have "
        "buckets from 8 to 8192 tokens",
    ] = ()
    padding_values: Annotated[
        tuple[str, ...],
        PADDINGS,
        'numbers that inputs are padded with, such as ["ids=1"]. All other inputs are padded with '
        "0",
    ] = ()
    lengths_input: Annotated[
        str | None,
        NAME,
        "input of the model, INT32 or INT64 [], that ringbatch fills with the true length of each "
        "instance. Clients do not send it",
    ] = None
    load_timeout_s: Annotated[
        float,
        number(DAY_S, zero=False),
        "seconds that a worker may take to open its model file, again to load the model, and for "
        "warm-up beyond warm_up_s. A worker that takes longer counts as hung and is ended",
    ] = 600.0
    warm_up: Annotated[
        Literal["required", "try", "off"],
        choice("required", "try", "off"),
        "run every batch size before the first request. required: a model that fails one is not "
        "served. try: it is served, with a warning. off: nothing is run",
    ] = "required"
    warm_up_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds that warm-up may take. Runs that would take longer are left out",
    ] = 30.0
    warm_up_length: Annotated[
        int,
        whole(1, 1 << 30),
        "size of dimensions of any size in warm-up, unless length_buckets gives it",
    ] = 16
    warm_up_file: Annotated[
        Path | None,
        FILE,
        "instances to warm up with, JSON as in a V1 request. By default they are made up from the "
        "model's inputs",
    ] = None
    max_latency_ms: Annotated[
        float,
        number(1000 * DAY_S, zero=True),
        "milliseconds that the oldest request of a batch waits for others while a worker is idle, "
        "under policy fixed. It has no effect under eager",
    ] = 500.0
    timeout_s: Annotated[
        float,
        number(DAY_S, zero=False),
        "seconds from a request's acceptance to its deadline",
    ] = 60.0
    first_part_timeout_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds from a request's acceptance to the first part of its answer, for clients that "
        "get it in parts. A request that gets none in that time ends with 504, and is refused with "
        "503 if it would wait longer. 0 leaves it to timeout_s",
    ] = 0.0
    part_gap_timeout_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds from each part of an answer to the next, for clients that get it in parts. Later "
        "the answer ends with an error. 0 leaves it to timeout_s",
    ] = 0.0
    stream_stall_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds for which a client may take no byte of an answer in parts while parts wait for "
        "it. Then the answer ends with an error, and its row frees its place. It is looked at once "
        "a second. 0 sets no limit",
    ] = 30.0
    batch_timeout_s: Annotated[
        float | None,
        number(DAY_S, zero=False),
        "seconds that one run of a batch may take before its worker counts as hung and is "
        "replaced. A worker that waits for a model server or an actor gets 5 s more. By default a "
        "quarter of timeout_s, and at least 1. For the runtime http the default is timeout_s",
    ] = None
    max_queue_wait_s: Annotated[
        float,
        number(DAY_S, zero=True),
        "seconds in which a new request must be expected to be answered once the model's queue has "
        "not been empty for 0.1 s. Others are refused with 503, bursts are taken. For clients that "
        "give up unseen, a little less than their patience; a fifth of it if they ask again at "
        "once after a refusal. It counts as the time of 3.4 batches at least. 0 leaves it to "
        "timeout_s",
    ] = 0.0
    policy: Annotated[
        Literal["eager", "fixed"],
        choice("eager", "fixed"),
        "rule by which a batch closes. eager: as soon as a worker is idle. fixed: once a worker "
        "is idle, and the batch is full or its oldest request has waited max_latency_ms",
    ] = "eager"
