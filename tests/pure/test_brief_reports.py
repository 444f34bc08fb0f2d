"""Of each test that passes a run is told once."""

from typing import Literal

import pytest
from brief_reports import is_sent

SAID = [("Captured stdout", "words")]
When = Literal["setup", "call", "teardown"]
Outcome = Literal["passed", "failed", "skipped"]


@pytest.mark.parametrize(
    ("when", "outcome", "said", "sent"),
    [
        ("setup", "passed", [], False),
        ("setup", "passed", SAID, True),
        ("setup", "failed", [], True),
        ("setup", "skipped", [], True),
        ("call", "passed", [], True),
        ("call", "failed", [], True),
        ("call", "skipped", [], True),
        ("teardown", "passed", [], False),
        ("teardown", "passed", SAID, True),
        ("teardown", "failed", [], True),
    ],
)
def test_all_is_sent_but_silence_around_a_test(
    when: When, outcome: Outcome, said: list[tuple[str, str]], sent: bool
) -> None:
    report = pytest.TestReport("x::y", ("x", 1, "y"), {}, outcome, None, when, said)
    assert is_sent(report) == sent
