"""Instants by number, against a plain table that is looked through."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ringbatch.engine.collector.instants import Instants

numbers = st.integers(0, 5)
instants = st.integers(0, 20)


class InstantsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.instants = Instants()
        self.model: dict[int, int] = {}

    @rule(number=numbers, at_ns=instants)
    def put(self, number: int, at_ns: int) -> None:
        self.instants.put(number, at_ns)
        self.model[number] = at_ns

    @rule(number=numbers)
    def drop(self, number: int) -> None:
        self.instants.drop(number)
        self.model.pop(number, None)

    @precondition(lambda self: self.model)
    @rule()
    def look(self) -> None:
        first = min((at_ns, number) for number, at_ns in self.model.items())
        assert self.instants.first() == first

    @rule(now_ns=instants)
    def take(self, now_ns: int) -> None:
        due = sorted((at_ns, n) for n, at_ns in self.model.items() if at_ns <= now_ns)
        assert self.instants.take(now_ns) == [number for _, number in due]
        for _, number in due:
            del self.model[number]

    @invariant()
    def they_are_those_of_the_table(self) -> None:
        assert self.instants.at_ns == self.model


TestInstants = InstantsMachine.TestCase


def test_outdated_instants_do_not_pile_up() -> None:
    instants = Instants()
    for number in range(10):
        instants.put(number, 1)
    for at_ns in range(2, 10_000):
        instants.put(3, at_ns)
    assert len(instants._heap) <= 64
    assert instants.first() == (1, 0)
