"""What the help of each command ends with."""

from typing import Final

OVERALL: Final = """\
examples:
  ringbatch serve                          the bundled digits model, on 127.0.0.1:8080
  ringbatch serve model.py --name mnist    a model of your own
  ringbatch serve --config ringbatch.toml  everything, in one file
  ringbatch sidecar --component-port 8501  batching in front of a model server
  ringbatch demo                           see it work, with real images
"""

SERVE: Final = """\
Flags win over the file. Where the file has several models, --name says which one the flags for
a model are for. MODEL with a --name that the file does not have is served beside the file's own.

examples:
  ringbatch serve
  ringbatch serve model.py --name mnist --workers 2
  ringbatch serve model.onnx --name mnist
  ringbatch serve http://127.0.0.1:8501 --name mnist
  ringbatch serve model.py --policy fixed --max-batch-size 32 --max-latency-ms 500
  ringbatch serve --config ringbatch.toml --port 0
  ringbatch serve --config ringbatch.toml --name mnist --timeout-s 5

try it:
  curl localhost:8080/v1/models
"""

DOCTOR: Final = """\
Looks at this host, starts nothing, changes nothing, and prints what it found; where something is
not well, why that matters and what to do. MODEL, --config and all flags are those of serve, and say
what is to run here. Without any, what serve runs without any. Limits are those of this process: run
it where the engine is to run, in its container, or with systemd-run and the settings of its unit.

The exit status is 1 where anything is at the level error, else 0.

--json prints {"findings": [...], "versions": {...}}. Each finding has "check" (a name that stays),
"level" (ok, note, warning or error), "found", "why" and "do" (empty where there is nothing to do).

examples:
  ringbatch doctor
  ringbatch doctor --config ringbatch.toml
  ringbatch doctor --config ringbatch.toml --json
"""

TOP: Final = """\
Shows an engine as it works, until q is typed: of each model the requests answered in a second and
their times, those in flight, those that wait for a worker and how long the oldest has, what a new
one is expected to take, the mean batch, why batches were closed, and how requests ended; of each
worker its state and how busy it is. All is read from the engine's memory; it does not notice.

P50 and P99 are below the edge that is shown: times are counted in steps of two. Without a terminal,
and with --once, the first interval is printed, and all lines of it.

examples:
  ringbatch top
  ringbatch top prod --interval 5
  ringbatch top prod --once
"""

RELOAD: Final = """\
Without --model, the engine reads its configuration again and serves what it says now: models that
are new, changed, or whose files changed are loaded, others go. With --model, that model is loaded
again whatever changed. What is new takes the requests once it is ready, and what it replaces
finishes those that it has. Where a model cannot be loaded, what served before serves on, and the
exit status is 1. So it is, without --model, where settings in [server] differ from those that the
engine was started with, such as the port; they are named, and ringbatch handover or a restart takes
them.

examples:
  ringbatch reload
  ringbatch reload prod
  ringbatch reload prod --model mnist
"""

COMPLETION: Final = """\
Prints a script that completes commands, flags, words and files.

examples:
  ringbatch completion bash > /etc/bash_completion.d/ringbatch
  ringbatch completion zsh > /usr/local/share/zsh/site-functions/_ringbatch
  ringbatch completion fish > /etc/fish/completions/ringbatch.fish
"""

MANUAL: Final = """\
Prints the manual page, made of what --help says.

examples:
  ringbatch manual > /usr/local/share/man/man1/ringbatch.1
  ringbatch manual | man -l -
"""
