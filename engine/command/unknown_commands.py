"""Suggestions for unknown commands: those of other servers, and model files. Pure."""

from pathlib import Path
from typing import Final

from ringbatch.engine.config.kinds import runtime_of

_STOP: Final = "Ctrl-C where the engine runs, or `kill PID`, as `ringbatch status` prints it"
_HERE: Final = {
    "down": _STOP,
    "help": "`ringbatch --help`",
    "list": "`ringbatch models`",
    "load": "`ringbatch reload`",
    "logs": "standard error of the engine, or `journalctl -u ringbatch@NAME`",
    "ps": "`ringbatch status`",
    "restart": "`ringbatch handover`",
    "run": "`ringbatch serve`",
    "shutdown": _STOP,
    "start": "`ringbatch serve`",
    "stop": _STOP,
    "up": "`ringbatch serve`",
    "validate": "`ringbatch check`",
    "version": "`ringbatch --version`",
}


def command_for(word: str) -> str:
    """Return the command that a word in the place of one probably means; empty if unknown."""
    if word in _HERE:
        return f"that is here {_HERE[word]}"
    if Path(word).suffix == ".toml":
        return f"did you mean `ringbatch serve --config {word}`?"
    if "://" in word or runtime_of(Path(word)) is not None:
        return f"did you mean `ringbatch serve {word}`?"
    return ""
