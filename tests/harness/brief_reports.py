"""Reports of the processes of a run: what became of each test, once.

A process of pytest-xdist tells the one that started it six times of each test: that it begins, how
its set-up went, and so on. Each time that is put into bytes, sent, read and handed around. For most
tests that is more work than the test. Of a test that passes only one report is ever shown.
"""

from typing import Self

import pytest
from _pytest.runner import runtestprotocol


class BriefReports:
    """A plugin in place of pytest's own way to run a test and report it."""

    @classmethod
    def of(cls, config: pytest.Config) -> Self | None:
        """None where one process runs all, or an option asks for what is left out: the names of
        tests, the times of set-ups, or an end at the first failure."""
        asked = config.option
        asks = asked.verbose > 0 or asked.durations is not None or asked.maxfail
        return cls() if hasattr(config, "workerinput") and not asks else None

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test and say what is to be told of it."""
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if is_told(report):
                item.ihook.pytest_runtest_logreport(report=report)
        if nextitem is None:
            # By this the run shows that all of it is done.
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def is_told(report: pytest.TestReport) -> bool:
    """Return whether a report is more than that of a set-up or tear-down that passed in silence.
    Pure."""
    return report.when == "call" or not report.passed or bool(report.sections)
