"""The supervisor with one thing wrong at a time, each of which its lives must find."""

from typing import Final

from simulation.mutation import Late, Mutant

from ringbatch.engine.process import respawn
from ringbatch.engine.supervisor import early_restarts, managed_process
from ringbatch.engine.supervisor.autoscaler import Autoscaler
from ringbatch.engine.supervisor.change_plan import ChangePlan
from ringbatch.engine.supervisor.change_runner import ChangeRunner
from ringbatch.engine.supervisor.channel import Channel
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.engine.supervisor.collectors import Collectors
from ringbatch.engine.supervisor.early_restarts import EarlyRestarts
from ringbatch.engine.supervisor.hang_detection import HangDetection
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.managed_process import ManagedProcess
from ringbatch.engine.supervisor.model_changes import ModelChanges
from ringbatch.engine.supervisor.process_manager import ProcessManager
from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.shm_names_check import ShmNamesCheck
from ringbatch.engine.supervisor.supervisor import Supervisor

UNHEARD: Final = "a collector that cannot hear of the table fails a change"
MUTANTS: Final[dict[str, Mutant | Late]] = {
    "a process that could not be started is not planned again": Mutant(
        ProcessManager, "spawn", "self.plan_restart(managed, RestartCase.REFUSED)", "pass"
    ),
    "frontends pay for the start of others": Mutant(
        Supervisor, "_start", "(*workers, *self.frontends.watched)", "workers"
    ),
    "a ready process keeps its limit": Mutant(
        ProcessManager, "mark_ready", "managed.limit_ns = None", "pass"
    ),
    "a hanging process is never killed": Mutant(
        ProcessManager, "end_hung", "managed.kill_ns = self._clock_ns() + _DUMP_NS", "pass"
    ),
    "an ended process keeps its limits": Mutant(
        ProcessManager, "_died", "managed.kill_ns = managed.limit_ns = None", "pass"
    ),
    "a process that sends nonsense lives on": Mutant(
        ProcessManager, "_listen", "child.kill(signal.SIGKILL)", "pass"
    ),
    "processes are started while the engine stops": Mutant(
        ProcessManager, "stop", "self.stopping = True", "pass"
    ),
    "a process that does not stop in time is not killed": Mutant(
        ProcessManager, "end", "self._loop.guard(partial(child.kill, signal.SIGKILL))", "pass"
    ),
    "one that cannot be asked to end keeps the others from it": Mutant(
        ProcessManager,
        "end",
        "self._loop.guard(partial(child.kill, signal.SIGTERM))",
        "child.kill(signal.SIGTERM)",
    ),
    "the next collector does not hear whose batches to reclaim": Mutant(
        Collectors, "promote", "self._send_death(worker)", "pass"
    ),
    "a collector may take for ever to take over": Mutant(
        Collectors, "limit_wait", "elif managed.limit_ns is None and", "elif False and"
    ),
    "nobody stands by again": Mutant(
        Supervisor,
        "on_ended",
        "if managed.worker is None:",
        "if managed is self._collectors.standby:\n        pass\n    elif managed.worker is None:",
    ),
    "a worker is started again before its batches are reclaimed": Mutant(
        Supervisor,
        "on_ended",
        "self._collectors.worker_died(managed, killed=blameless)",
        "self._collectors.worker_died(managed, killed=blameless)\n"
        "        self._manager.plan_restart(managed, managed.case)",
    ),
    "a fault in the midst of a change is nobody's": Mutant(
        ChangeRunner, "break_off", "self._undo(plan)", "pass"
    ),
    UNHEARD: Mutant(
        Supervisor,
        "_notify_table_changed",
        "self._loop.guard(partial(self._collectors.send, ReadTable()), self._collectors.replace)",
        "self._collectors.send(ReadTable())",
    ),
    "a model serves before it is warmed up": Mutant(
        ChangeRunner,
        "_await_loaded",
        "all(managed.ready_ns for managed in processes) and new <= self.loaded",
        "True",
    ),
    "a serving model goes when another is loaded in its stead": Mutant(
        ServedModels,
        "enter",
        "plan.entered(self.entries, loading)",
        "plan.entered((), loading)",
    ),
    "a change that fails takes the serving model with it": Mutant(
        ChangeRunner,
        "_undo",
        "self._served.publish(before)",
        "self._served.publish(tuple(s for s in before if s.name != plan.change.name))",
    ),
    "a model that fails in warm-up at the start is tried again": Mutant(
        Supervisor,
        "on_ended",
        "if managed.lasting and not (managed.ever_ready and self._segment is not None):",
        "if managed.lasting and self._segment is None:",
    ),
    "a caught error is not caught": Mutant(Loop, "turn", "self.guard(*key.data)", "key.data.act()"),
    "an order that fails as nobody expects is not answered": Mutant(
        ModelChanges, "break_off", "for task in tasks:", "for task in ():"
    ),
    "an order is not answered when the engine stops": Mutant(
        ModelChanges, "abandon", 'reply(Report("failed", ("the engine is stopping",)))', "pass"
    ),
    "workers of a change that failed stay": Mutant(
        ChangeRunner, "_undo", "self._pool.end(managed)", "pass"
    ),
    "a suspended host is taken for processes that hang": Mutant(
        HangDetection, "step", "if pulse.seen.hangs:", "if pulse.seen.silent:"
    ),
    "the last words of a process with children are awaited": Mutant(
        Channel, "unread_lines", "self._socket.shutdown(socket.SHUT_RD)", "pass"
    ),
    "a process is waited for before its session is killed": Late(
        Child, "reap", "kill_session(", "status ="
    ),
    "the change that the load wants is decided and not done": Mutant(
        Autoscaler,
        "_begin",
        "self._changes.scale(queued.reference, decision.workers, partial(self._conclude, queued))",
        "pass",
    ),
    "the load is looked at once": Mutant(
        Autoscaler, "step", "self.next_ns = now_ns + LOOK_NS", "self.next_ns = 1 << 62"
    ),
    "after a fault the load is never looked at again": Mutant(
        Autoscaler, "pause", "self._clock_ns() + PAUSE_NS", "1 << 62"
    ),
    "an order does not wait for a model that is scaled": Mutant(
        ModelChanges, "_carry_out", "partial(self._is_free, change.name)", "lambda: True"
    ),
    "workers that the load lets go are not": Mutant(
        ChangePlan, "switched", "leaving += numbers[size:]", "leaving += ()"
    ),
    "a child that cannot be sent anything is lost": Mutant(
        Child, "__init__", "undo.callback(self._end_at_once)", "pass"
    ),
    "an engine that nobody can attach to tries for ever": Mutant(
        ShmNamesCheck, "step", "raise NamesLost(words(lost))", "pass"
    ),
    "whether anybody can attach is looked at once": Mutant(
        ShmNamesCheck, "step", "self.next_ns = now_ns + LOOK_EVERY_NS", "self.next_ns = 1 << 62"
    ),
}

SOUGHT_FROM: Final = {
    "frontends pay for the start of others": 1584,
    "an ended process keeps its limits": 30,
    "a process that sends nonsense lives on": 30,
    "a process that does not stop in time is not killed": 20,
    "one that cannot be asked to end keeps the others from it": 110,
    "a collector may take for ever to take over": 50,
    "a fault in the midst of a change is nobody's": 80,
    UNHEARD: 3710,
    "a model that fails in warm-up at the start is tried again": 100,
    "an order that fails as nobody expects is not answered": 80,
    "after a fault the load is never looked at again": 70,
    "an order does not wait for a model that is scaled": 20,
    "workers that the load lets go are not": 260,
    "an engine that nobody can attach to tries for ever": 50,
    "whether anybody can attach is looked at once": 50,
}
"""The first seed of the lives in which a mutant is sought, for those that few lives show."""

RESTART_MUTANTS: Final[dict[str, Mutant | Late]] = {
    "a killed process has crashed": Mutant(
        managed_process, "case_of", "RestartCase.KILLED if ready", "RestartCase.CRASHED if ready"
    ),
    "an answering process has crashed": Mutant(
        managed_process,
        "case_of",
        "RestartCase.ANSWERED if answered",
        "RestartCase.CRASHED if True",
    ),
    "a silent process has answered": Mutant(
        managed_process, "case_of", "return RestartCase.LOADING", "return RestartCase.ANSWERED"
    ),
    "it is not seen which process has answered": Mutant(
        ManagedProcess,
        "note_start",
        "self.batches = self._batches(segment)",
        "self.batches = 1 << 60",
    ),
    "delays are as long while requests wait": Mutant(
        early_restarts, "awaited_ns", "min(planned_ns, ended_ns + MOST_AWAITED_NS)", "planned_ns"
    ),
    "delays end while no request waits": Mutant(
        EarlyRestarts,
        "_awaited",
        "if words[layout.model(spec.index) + ModelWords.AWAITED]:",
        "if True:",
    ),
    "it is looked once at the waiting models": Mutant(
        EarlyRestarts, "step", "self.next_ns = now_ns + LOOK_NS", "self.next_ns = 1 << 62"
    ),
    "no end costs any time": Mutant(respawn, "next_delay", "longest_s * (1 + jitter) / 2", "0.0"),
}
"""Mutants that break the restart rule; `simulation.hail` must find each."""
