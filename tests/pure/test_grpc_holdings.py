"""Whose connections end for what they have a frontend for gRPC hold."""

import pytest

from ringbatch.frontend.grpc.holdings import Budget, Connection

MIB = 1 << 20
BUDGET = Budget.of(16 * MIB, 75.0)


def connection(silent_s: float, received_mib: int) -> Connection:
    return Connection(lambda: None, silent_s, received_mib * MIB)


BUSY = connection(0.0, 10_000)
PAUSING = connection(5.0, 100)
SILENT = connection(80.0, 60)
LITTLE = connection(80.0, 1)


@pytest.mark.parametrize(
    ("held_mib", "ended"),
    [
        (0, []),
        (8, []),
        (9, [SILENT]),
        (100, [SILENT, LITTLE]),
        (129, [PAUSING]),
        (256, [PAUSING, SILENT]),
        (257, [PAUSING, SILENT]),
        (400, [PAUSING, SILENT, LITTLE, BUSY]),
    ],
)
def test_the_more_is_held_the_sooner_a_silent_connection_ends(
    held_mib: int, ended: list[Connection]
) -> None:
    assert BUDGET.to_end(held_mib * MIB, [LITTLE, SILENT, PAUSING, BUSY]) == ended


def test_several_of_the_largest_requests_have_room() -> None:
    assert Budget.of(1, 75.0).limit_bytes == 64 * MIB
    assert Budget.of(100 * MIB, 75.0).limit_bytes == 800 * MIB


def test_a_short_patience_is_not_prolonged_where_the_budget_is_spent() -> None:
    impatient = Budget.of(1, 0.5)
    assert impatient.silence_s(65 * MIB) == 0.5
    assert impatient.silence_s(5 * MIB) == 0.5
    assert impatient.silence_s(MIB) is None
