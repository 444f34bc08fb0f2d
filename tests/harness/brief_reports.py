"""Brief reports of a distributed run: each test's outcome reaches the controller once.

A worker process of pytest-xdist sends six messages for each test: its start, the outcome of its
set-up, and so on. The worker encodes each message, and the controller decodes it and calls the
hooks. For most tests that takes longer than the test. Only one report of a test that passes is ever
shown.
"""

from typing import Self

import pytest
from _pytest.runner import runtestprotocol


class BriefReports:
    """Plugin that runs each test in place of pytest, and sends fewer reports."""

    @classmethod
    def of(cls, config: pytest.Config) -> Self | None:
        """Return the plugin of a worker process; None if an option needs the other reports.

        These show the names of tests, the times of set-ups, or end the run at the first failure.
        """
        asked = config.option
        asks = asked.verbose > 0 or asked.durations is not None or asked.maxfail
        return cls() if hasattr(config, "workerinput") and not asks else None

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test, and send its reports."""
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if is_sent(report):
                item.ihook.pytest_runtest_logreport(report=report)
        if nextitem is None:
            # The controller needs one of these to show that the run is complete.
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def is_sent(report: pytest.TestReport) -> bool:
    """Return whether a report is sent: not that of a set-up or tear-down that passed in silence.

    Pure.
    """
    return report.when == "call" or not report.passed or bool(report.sections)
