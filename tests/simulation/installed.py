"""Patches of the engine's modules while lives run: time, memory, and more."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Final, NoReturn
from unittest.mock import patch

from simulation.machine import Machine
from simulation.memory import ItemStridedView, Memory, Packed
from simulation.on_device import LOOK_AGAIN_S

from ringbatch.engine.collector import loop as collector_loop
from ringbatch.engine.collector import reports as reports_module
from ringbatch.engine.worker import chain_steps as steps_module
from ringbatch.engine.worker import device_worker as device_worker_module
from ringbatch.engine.worker import tensor_codec as codec_module
from ringbatch.engine.worker import tensors
from ringbatch.frontend.request import gateway as gateway_module
from ringbatch.frontend.request import models as models_module
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.shm import engine_slots as holder_module
from ringbatch.shm import joined as joined_module
from ringbatch.shm import lane as lane_module
from ringbatch.shm import uniform_batch
from ringbatch.shm.account import PriorityClass, account_word
from ringbatch.shm.slot_structs import (
    ANSWER_DETAILS,
    BATCH_DETAILS,
    PACKED_BATCH,
    PACKED_DETAILS,
    PACKED_INSTANTS,
    REQUEST_HEADER,
)

ACCOUNTS: Final = (
    1,
    2,
    account_word(2, weight=4),
    account_word(3, PriorityClass.INTERACTIVE),
    account_word(1, PriorityClass.BULK),
)
"""Accounts and classes that requests have."""
_FEW: Final = 3
"""Requests up to which a worker looks at each; batches here are small, and it must do both."""

_LOOKS: Final = 1
"""Rings of workers up to which a collector looks at all of them; here are few, and it must do
both."""


class Host:
    """The machine that the engine's modules believe to run on."""

    machine: Machine


host = Host()


@contextmanager
def installed() -> Iterator[None]:
    """The engine's modules have the host's time and processes, instead of this process's."""
    time = SimpleNamespace(monotonic_ns=lambda: host.machine.now_ns)
    with (
        patch.object(collector_loop, "time", time),
        patch.object(reports_module, "_LOOKS", _LOOKS),
        patch.object(lane_module, "_store_header", _store_header),
        patch.object(holder_module, "_store_details", Packed(ANSWER_DETAILS).pack_into),
        patch.object(holder_module, "PACKED_DETAILS", Packed(PACKED_DETAILS)),
        patch.object(holder_module, "PACKED_INSTANTS", Packed(PACKED_INSTANTS)),
        patch.object(holder_module, "PACKED_BATCH", Packed(PACKED_BATCH)),
        patch.object(joined_module, "BATCH_DETAILS", Packed(BATCH_DETAILS)),
        patch.object(codec_module, "StridedView", ItemStridedView),
        patch.object(steps_module, "StridedView", ItemStridedView),
        patch.object(uniform_batch, "FEW", _FEW),
        patch.object(tensors, "FEW", _FEW),
        patch.object(device_worker_module, "LOOK_AGAIN_S", LOOK_AGAIN_S),
        patch.object(gateway_module, "log", SimpleNamespace(exception=_raise_again)),
        patch.object(models_module, "V1Model", lambda spec, *_: _v1_model(spec)),
        patch.object(models_module, "V2Model", lambda *_: None),
    ):
        yield


def _store_header(memory: Memory, start: int, *values: int) -> None:
    """Store the header of a request with the account of one client or another, by its deadline."""
    *header, deadline_ns, _ = values
    account = ACCOUNTS[deadline_ns % len(ACCOUNTS)]
    Packed(REQUEST_HEADER).pack_into(memory, start, *header, deadline_ns, account)


def _raise_again(_: str) -> NoReturn:
    """No answer may be lost, nor what a life has found wrong with it."""
    raise


_v1_model = functools.cache(V1Model)
"""Cached V1 codec of a model: it is pure and takes longer to make than a schedule to run."""
