"""Ringbatch's own loggers, read from the sources: each is one that no model can silence."""

from sources import calls, modules

from ringbatch.shm.host.own_log import NAMES


def test_every_logger_of_ringbatch_is_kept() -> None:
    used = {
        call.args[0].value
        for module in modules()
        for call, called in calls(module)
        if called == "getLogger" and call.args and hasattr(call.args[0], "value")
    }
    ours = {name for name in used if str(name).startswith("ringbatch")}
    # LightGBM writes to it, and is to be silent.
    assert ours - {"ringbatch.lightgbm"} == set(NAMES)
