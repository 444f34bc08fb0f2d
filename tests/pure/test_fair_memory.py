"""Memory of fair shares: whatever addresses come, it is bounded by what waits, and by constants."""

import gc
from ipaddress import IPv4Address
from types import FunctionType, MethodType, ModuleType
from typing import Final

import pytest
from simulation.mutation import Mutant
from tiers import first_of, only

from ringbatch.engine.collector.fair_order import FairOrder
from ringbatch.engine.collector.queues import Queues
from ringbatch.engine.collector.usage import Usage
from ringbatch.frontend.security.accounts import Accounts
from ringbatch.shm.engine_slots import Request

ADDRESSES: Final = 100_000
FEW_ADDRESSES: Final = 15_000
"""Enough to find each account or key that stays."""
WAITING: Final = 64
CAP: Final = 32
FIRST: Final = int(IPv4Address("10.0.0.0"))
OF_A_REQUEST: Final = 40
"""The most objects that a waiting request needs, with its account, its places and its numbers."""
OF_AN_ADDRESS: Final = 8
KNOWN: Final = 4096
ELSE: Final = 500
_COMMON = (type, ModuleType, FunctionType, MethodType, type(len))


def held(root: object) -> int:
    """Return the number of objects reachable from a container."""
    seen, left = {id(root): root}, [root]
    while left:
        for each in gc.get_referents(left.pop()):
            if id(each) not in seen and not isinstance(each, _COMMON):
                seen[id(each)] = each
                left.append(each)
    return len(seen)


def address(number: int) -> tuple[str, int]:
    return str(IPv4Address(FIRST + number)), 50_000


def flood(queues: Queues, addresses: int) -> int:
    """Send one request from each address, while others wait, and return the most objects held.

    The second half of the requests are of two signatures.
    """
    accounts, most = Accounts(), 0
    for number in range(addresses):
        word = accounts.peer(address(number)).account
        request = Request(number, 0, 1, 0, 0, 0, 0, 0, number, 1 << 62, word)
        key = b"b" if number % 2 and number > addresses // 2 else b"a"
        queues.extend(key, [request], 1, request.deadline_ns, (word,))
        if number % 3 == 0:
            queues.remove(key, number)
        if queues.rows > WAITING + CAP:
            queues.take(queues.first(number), CAP)
        if number % 4_999 == 0:
            most = max(most, held(queues))
    return most


def stay_level(addresses: int) -> None:
    queues = Queues()
    assert flood(queues, addresses) < (WAITING + CAP) * OF_A_REQUEST + ELSE
    assert queues.rows <= WAITING + CAP


@pytest.mark.parametrize("addresses", first_of([FEW_ADDRESSES, ADDRESSES], 1))
def test_addresses_that_come_once_leave_nothing_in_the_queues(addresses: int) -> None:
    stay_level(addresses)


WRONG: Final[dict[str, Mutant]] = {
    "no account is forgotten": Mutant(Usage, "end", "del self._accounts[account.word]", "pass"),
    "no newcomer is forgotten": Mutant(Usage, "take_together", "del accounts[word]", "pass"),
    "no line is forgotten": Mutant(
        FairOrder, "_leave", "del self._lines[line.account.word]", "pass"
    ),
    "keys of requests stay": Mutant(Queues, "_forget_turns", "del self._keys[request.ref]", "pass"),
}


@pytest.mark.parametrize("wrong", only(WRONG, "no account is forgotten", "keys of requests stay"))
def test_an_account_that_is_not_forgotten_is_found_out(wrong: Mutant) -> None:
    with wrong.applied(), pytest.raises((AssertionError, KeyError)):
        stay_level(FEW_ADDRESSES)


def test_a_hundred_thousand_addresses_leave_few_in_a_frontend() -> None:
    accounts, most = Accounts(), 0
    for number in range(ADDRESSES):
        accounts.peer(address(number))
        if number % 9_999 == 0:
            most = max(most, held(accounts))
    assert KNOWN < most < KNOWN * OF_AN_ADDRESS + ELSE
