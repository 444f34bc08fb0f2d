"""``ringbatch reload``: have a running engine serve what its configuration says now."""

import sys

from ringbatch.engine.supervisor.order_client import ask
from ringbatch.shm.engine_name import is_engine_name
from ringbatch.shm.engines import only, running
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.control_socket import Order


def main(engine: str | int | None, word: str | None, model: str | None) -> int:
    """Wait for a reload, print the changes, and return the exit status.

    The status is 1 if any part failed, or is left as it was because only another engine can have
    it, as a port.

    Args:
        engine: its name, or the process id of its supervisor; None for the only one of this user.
        word: an argument without a flag: an engine, or in the older form a model.
        model: to be loaded again; None for all that changed.

    Raises:
        StartupError: no such engine runs, several do, or its supervisor does not answer. Or the
            word names neither an engine nor a served model.
    """
    if word is not None and engine is None and (model is not None or _runs(word)):
        engine = int(word) if word.isdecimal() else word
    elif word is not None and model is None:
        if engine is None:
            _expect_model(word)
        why = "" if engine is not None else "no engine is called that, so "
        _note(f"{word}: {why}it is taken for a model; write --model {word}")
        model = word
    elif word is not None:
        raise StartupError(f"{word}: an engine and a model are named by flags; leave out {word}")
    report = ask(only(engine), Order("reload", model), _note)
    done = report.end == "done"
    for line in report.lines:
        print(f"ringbatch: {line}", file=sys.stdout if done else sys.stderr)
    return 0 if done else 1


def _runs(word: str) -> bool:
    """Return whether a word names a running engine; print a note if it names its model too."""
    if not is_engine_name(word) and not word.isdecimal():
        return False
    try:
        with running(int(word) if word.isdecimal() else word) as found:
            if any(model.name == word for segment in found for model in segment.models):
                _note(f"{word}: is taken for the engine; for its model alone, write --model {word}")
    except StartupError:
        return False
    return True


def _expect_model(word: str) -> None:
    """Refuse a word that names no running engine, unless an engine serves a model so called.

    Raises:
        StartupError: it may name an engine that does not run, or is another user's.
    """
    with running(None) as found:
        if any(model.name == word for segment in found for model in segment.models):
            return
    if not is_engine_name(word):
        return
    try:
        with running(word):
            pass
    except StartupError as error:
        raise StartupError(f"{error}. For a new model of that name, write --model {word}") from None


def _note(text: str) -> None:
    print(f"ringbatch: {text}", file=sys.stderr)
