"""Help texts of commands: descriptions, exit statuses and examples."""

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
Flags win over the file. If the file has several models, --name selects the model that the flags
are for. A MODEL whose --name is not in the file is served beside the models of the file.

exit status:
  0  a signal stopped the engine; requests without an answer after drain_s were cut off, and logged
  1  the engine failed, for example because its files in /dev/shm were removed
  2  the engine could not start; the reason is on standard error
  130  a second Ctrl-C ended the engine at once, without answers to requests in flight
  143  a second SIGTERM did so

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

DEMO: Final = """\
Serves the bundled digits model on a free port, sends it pictures of handwritten digits from many
connections, prints the answers and the times, and stops the engine.

exit status:
  0  every answer was right
  1  an answer was wrong or missing, or the engine did not stop cleanly

examples:
  ringbatch demo
  ringbatch demo --requests 10000 --clients 128
"""

DOCTOR: Final = """\
Examines this host, and changes nothing. It prints each finding, with the reason and the remedy if
something is wrong. MODEL, --config and all flags are those of serve, and name the configuration
that is to run here. The limits examined are those of this process. So run it where the engine is to
run: in its container, or under systemd-run with the settings of its unit.

--json prints {"findings": [...], "versions": {...}}. Each finding has "check" (a stable name),
"level" (ok, note, warning or error), "found", "why" and "do" (empty if there is nothing to do).

exit status:
  0  the engine can work here
  1  a finding has the level error

examples:
  ringbatch doctor
  ringbatch doctor --config ringbatch.toml
  ringbatch doctor --config ringbatch.toml --json
"""

STATUS: Final = """\
Prints the counters of an engine: how batches were filled, why they closed, how long requests
waited, and what each worker did. It reads shared memory, and the engine does not notice.

exit status:
  0  printed
  1  no such engine runs

examples:
  ringbatch status
  ringbatch status prod
"""

MODELS: Final = """\
Prints the models of an engine, their inputs and outputs, and how long warm-up ran each batch size.

exit status:
  0  printed
  1  no such engine runs

examples:
  ringbatch models
  ringbatch models prod
"""

TOP: Final = """\
Shows an engine as it works, until q is typed. For each model: requests answered in a second and
their times; requests in flight, those that wait, and the longest wait; the expected time of a new
request; the mean batch, why batches closed, and how requests ended. For each class of requests, if
any is not normal: requests given to workers in a second, their mean wait for a worker, their share
of the model's time, and refusals. For each worker: its state and how busy it is. It reads shared
memory, and the engine does not notice.

P50 and P99 are upper bounds, because times are counted in steps of two. Without a terminal, and
with --once, it prints the first interval, and all lines of it.

exit status:
  0  printed, or ended with q
  2  no such engine runs, or several run and none is named

examples:
  ringbatch top
  ringbatch top prod --interval 5
  ringbatch top prod --once
"""

RELOAD: Final = """\
Without --model, the engine reads its configuration again. It loads models that are new or changed,
or whose files changed, and removes those that are gone. With --model, it loads that model again
even if nothing changed. A new model takes the requests once it is ready, and the model that it
replaces finishes those that it has. If a model cannot be loaded, the old one serves on.

Settings in [server] do not change, such as the port. They are named, and need ringbatch handover or
a restart. If the engine takes long, the command says what it waits for. It gives up after 15 to
30 seconds in which the engine's supervisor is stopped or hangs.

exit status:
  0  everything was applied
  1  a model could not be loaded, or settings in [server] changed; the rest is applied
  2  no such engine runs, several run and none is named, or its supervisor does not answer

examples:
  ringbatch reload
  ringbatch reload prod
  ringbatch reload prod --model mnist
"""

COMPLETION: Final = """\
Prints a script that completes commands, flags, words and files in a shell.

exit status:
  0  printed

examples:
  ringbatch completion bash > /etc/bash_completion.d/ringbatch
  ringbatch completion zsh > /usr/local/share/zsh/site-functions/_ringbatch
  ringbatch completion fish > /etc/fish/completions/ringbatch.fish
"""

MANUAL: Final = """\
Prints the manual page, made from the texts of --help.

exit status:
  0  printed

examples:
  ringbatch manual > /usr/local/share/man/man1/ringbatch.1
  ringbatch manual | man -l -
"""
