"""ringbatch's log lines beside models that configure `logging`: they go where they went before."""

import re
import subprocess
import sys

import pytest

ACTS = {
    "nothing": "pass",
    "dictConfig": "logging.config.dictConfig({'version': 1})",
    "dictConfig of a root": """
logging.config.dictConfig({
    'version': 1,
    'handlers': {'none': {'class': 'logging.NullHandler'}},
    'root': {'handlers': ['none'], 'level': 'CRITICAL'},
    'loggers': {'ringbatch': {'handlers': ['none'], 'level': 'CRITICAL', 'propagate': False}},
})""",
    "disable": "logging.disable()",
    "basicConfig": "logging.basicConfig(force=True, handlers=[logging.NullHandler()])",
    "shutdown": "logging.shutdown()",
    "no handlers": "logging.getLogger().handlers.clear()",
    "handlers changed": """
for handler in logging.getLogger().handlers:
    handler.setFormatter(logging.Formatter('%(message).1s'))
    handler.setLevel(logging.CRITICAL)
    handler.addFilter(lambda record: False)""",
    "loggers changed": """
for name, logger in logging.getLogger().manager.loggerDict.items():
    logger.disabled = True
    logger.propagate = False
    getattr(logger, 'setLevel', print)(logging.CRITICAL)""",
    "record factory": "logging.setLogRecordFactory(lambda *_, **__: 1 / 0)",
    "less in records": "logging.logProcesses = logging.logThreads = False",
    "no source of records": "logging._srcfile = None",
    "warnings": "warnings.simplefilter('error'); logging.captureWarnings(True)",
    "stderr": "sys.stderr = io.StringIO()",
    "no stderr": "sys.stderr = sys.__stderr__ = None",
    "odd stderr": "sys.stderr = object()",
    "descriptor": "os.dup2(os.open(os.devnull, os.O_WRONLY), 2)",
    "closed descriptor": "os.close(2)",
    "excepthook": "sys.excepthook = lambda *_: None",
}
PROGRAM = """
import io, logging, logging.config, os, sys, warnings
from ringbatch.shm.host.process import log_to_stderr
log_to_stderr("worker m/0", "info")
logger = logging.getLogger("ringbatch.worker")
{act}
logger.debug("unwanted")
logger.info("begun")
try:
    [][0]
except IndexError:
    logger.exception("batch %s failed", "b-7")
"""


@pytest.mark.parametrize("act", ACTS)
def test_a_workers_lines_are_in_the_log_after_any_act_of_its_model(act: str) -> None:
    command = [sys.executable, "-P", "-c", PROGRAM.format(act=ACTS[act])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r" ringbatch worker m/0 \[\d+\] INFO begun$", done.stderr, re.M)
    assert re.search(r" ringbatch worker m/0 \[\d+\] ERROR batch b-7 failed$", done.stderr, re.M)
    assert "  IndexError: list index out of range" in done.stderr
    assert "unwanted" not in done.stderr


def test_a_model_that_logs_less_of_processes_is_understood() -> None:
    act = ACTS["less in records"] + "\nlogging.warning('of the model')"
    command = [sys.executable, "-P", "-c", PROGRAM.format(act=act)]
    logged = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert re.search(r"\[\d+\] WARNING of the model$", logged, re.M)
