/* shm/engine_slots.py: EngineSlots.fail, by the collector. Nobody reads what it writes until DONE is stored,
 * and a successor writes it anew; so all of it is one step. */
inline fail(number) {
    ref = REF(control[number], number);
    MUST_HOLD(IS_OPEN(ref), g_answered_twice);
    MUST_HOLD(g_owner[header_extent[number]] == ref, g_handed_out_again);
    /* A text would stand where parts are read. */
    result[header_extent[number]] = (PART_IS_OUT(ref) -> result[header_extent[number]] : ref);
    done[number] = GENERATION(ref);
    answered[COLLECTOR]!ref
}

#define IN_BATCH(worker, ref) SAME(REF(batch[(worker) * MOST + SLOT(ref)], SLOT(ref)), ref)
/* engine/collector/collector.py: Collector._in_flight */
#define KNOWN(ref) \
    (SAME(REF(queue[SLOT(ref)], SLOT(ref)), ref) || IN_BATCH(0, ref) || IN_BATCH(1, ref))

/* engine/collector/collector.py: Collector._take_in */
inline take_in(reference) {
    MUST_HOLD(header_ref[SLOT(reference)] == reference, g_mixed_up);
    MUST_HOLD(queue[SLOT(reference)] == 0, g_handed_out_again);
    queue[SLOT(reference)] = GENERATION(reference)
}

inline leave_queue(number) {
    queue[number] = 0;
    queue_step[number] = 0;
    queue_deaths[number] = 0;
    again[number] = 0
}

/* engine/collector/dispatcher.py: Dispatcher.answer_cancelled */
inline answer_cancelled(number) {
    if
#ifdef GIVE_BACK_THE_HELD
    :: dropped[number] && IS_OPEN(REF(control[number], number)) ->
#else
    :: dropped[number] && queue[number] ->
#endif
        fail(number);
        leave_queue(number)
    :: else -> skip
    fi
}

/* As it comes into a queue, from wherever. */
inline look_at(number) {
#ifdef TAKE_IN_THE_CANCELLED
    skip
#else
    answer_cancelled(number)
#endif
}

/* engine/collector/dispatcher.py: Dispatcher.pass_on; engine/collector/chain_model.py: ChainModel.pass_on */
inline pass_on(at, number) {
    if
#ifdef PASS_ON_THE_ANSWERED
    :: batch[at] && !behind[at] && batch_step[at] < LAST_STEP ->
#else
    :: batch[at] && !behind[at] && batch_step[at] < LAST_STEP && IS_OPEN(REF(batch[at], number)) ->
#endif
#ifndef FORGET_THE_PASSED_ON
        take_in(REF(batch[at], number));
        queue_step[number] = batch_step[at] + 1;
        queue_deaths[number] = batch_deaths[at];
        look_at(number)
#else
        skip
#endif
    :: else -> skip
    fi
}

#define FIRST(worker, number) IN_TASK(worker, number, 0)

/* engine/collector/collector.py: Collector._take_reports, Collector._worker_ready, Collector._batch_done */
inline take_reports(worker) {
    do
    :: HAS(reports[worker]) ->
        reports[worker]?ref,slot,learnt_giver;
        if
        :: ref == 0 && slot == 0 && !ready[worker] ->
            ready[worker] = 1;
            idle[worker] = 1
#ifdef NUMBER_ALIKE
        :: (ref || slot) && ref == FIRST(worker, 0) && slot == FIRST(worker, 1) ->
#else
        :: !STEPS && (ref || slot) && ref == FIRST(worker, 0) && slot == FIRST(worker, 1) &&
                learnt_giver == batch_giver[worker * MOST + (ref -> 0 : 1)] ->
#endif
            for (i : worker * MOST .. worker * MOST + MOST - 1) {
                pass_on(i, i - worker * MOST);
                batch[i] = (behind[i] -> batch[i] : 0);
                batch_step[i] = (behind[i] -> batch_step[i] : 0);
                batch_giver[i] = (behind[i] -> batch_giver[i] : 0);
                batch_deaths[i] = 0;
                behind[i] = 0
            }
            idle[worker] = !ending[worker] && !GIVEN(worker)
        /* In steps batches end in any order, and a new collector knows of their open requests alone. */
        :: STEPS && IS_OF(worker, 0) -> take_done(worker, 0)
        :: STEPS && !IS_OF(worker, 0) && IS_OF(worker, 1) -> take_done(worker, 1)
        :: else -> skip
        fi
    :: else -> break
    od;
    ref = 0;
    slot = 0;
    learnt_giver = 0
}

#ifdef RUN_THE_BEGUN
#define TO_CUT_OFF(ref) false
#else
#define TO_CUT_OFF(ref) PART_IS_OUT(ref)
#endif

/* In steps all that a worker has. */
#define IS_RUNNING(entry) (STEPS || !behind[entry])

/* engine/collector/dead_batches.py: DeadBatches.take_back, DeadBatches._unanswered; shm/engine_slots.py: EngineSlots.repeat */
inline take_back(worker) {
    for (i : 0 .. MOST - 1) {
        count = worker * MOST + i;
        if
        :: batch[count] ->
            ref = REF(batch[count], i);
            if
#ifdef REPEAT_NOTHING
            :: !IS_OPEN(ref) -> skip
#else
            :: !IS_OPEN(ref) -> answered[COLLECTOR]!ref
#endif
            :: IS_OPEN(ref) && TO_CUT_OFF(ref) -> fail(i)
            :: IS_OPEN(ref) && !TO_CUT_OFF(ref) && IS_RUNNING(count) &&
                    batch_deaths[count] + 1 >= MAX_DEATHS -> fail(i)
            :: else ->
                take_in(ref);
                queue_step[i] = batch_step[count];
                again[i] = 1;
                queue_deaths[i] = batch_deaths[count] + IS_RUNNING(count);
                look_at(i)
            fi;
            batch[count] = 0;
            batch_step[count] = 0;
            batch_giver[count] = 0;
            batch_deaths[count] = 0;
            behind[count] = 0
        :: else -> skip
        fi
    }
}

inline reclaimed(worker) {
    told_dead[worker] = 0;
    may_start[worker] = 1
}

/* engine/collector/collector.py: Collector.worker_died; engine/collector/takeover.py: reclaim(); engine/collector/role.py:
 * main(), reclaimed */
inline reclaim(worker) {
    take_reports(worker);
    take_back(worker);
#ifndef REAPING_LEAVES_TASKS
    do
    :: HAS(tasks[worker]) -> tasks[worker]?_,_,_,_
    :: else -> break
    od;
#endif
    ready[worker] = 0;
    idle[worker] = 0;
    ending[worker] = 0;
    if
#ifndef RECLAIM_LEAVES_JOINED
    :: STEPS ->
        clearing = worker;
        takes_over = (collector_at == LEARNING);
        collector_at = CLEARING
#endif
    :: else -> reclaimed(worker)
    fi
}

#define CAN_DROP(number) \
    (collector_at == STEPPING && queue[number] && \
        ((dropped[number] && (idle[0] || idle[1])) || expiries_left))

inline drop(number) {
    expiries_left = expiries_left - !dropped[number];
    fail(number);
    leave_queue(number)
}

#define CAN_RETRY(number) (again[number] && !dropped[number])
#define CAN_RUN(number) (queue[number] && !again[number] && !dropped[number])

inline give(worker, number) {
    MUST_HOLD(!may_start[worker], g_assertion_of_the_code);
    batch[worker * MOST + number] = queue[number];
    batch_step[worker * MOST + number] = queue_step[number];
    batch_giver[worker * MOST + number] = collector_number;
    batch_deaths[worker * MOST + number] = queue_deaths[number];
    idle[worker] = 0;
    leave_queue(number)
}

#define STEP_OF(worker, later) \
    (IN_TASK(worker, 0, later) -> batch_step[(worker) * MOST] : batch_step[(worker) * MOST + 1])
#define SEND_TASK(worker, later) \
    tasks[worker]!IN_TASK(worker, 0, later),IN_TASK(worker, 1, later),STEP_OF(worker, later),\
        collector_number

/* The model gives any busy worker a batch to go on with; the code the only one, where it is full. */
#define CAN_PREPARE(worker) \
    (GIVEN(worker) && !ending[worker] && !behind[(worker) * MOST] && !behind[(worker) * MOST + 1])
#define CAN_GO_BEHIND(worker, number) \
    (CAN_RUN(number) && (STEPS -> HAS_PLACE(worker, number) : \
        CAN_PREPARE(worker) && !batch[(worker) * MOST + number]))

inline prepare(worker, number) {
    give(worker, number);
    behind[worker * MOST + number] =
        (STEPS -> IN_TASK(worker, 1 - number, 0) != 0 : 1);
    SEND_TASK(worker, behind[worker * MOST + number])
}

#ifdef SLOTS_FIRST
#define BEGINNING_WITH SCANNING
#define AFTER_SLOTS ASKING
#define AFTER_WORKERS STEPPING
#else
#define BEGINNING_WITH ASKING
#define AFTER_SLOTS STEPPING
#define AFTER_WORKERS SCANNING
#endif

/* In steps: all rings, JOINED in all slots, which workers are ready, and the slots once more. */
#ifdef SLOTS_BEFORE_RINGS
#define FIRST_OF_STEPS FINDING
#define AFTER_JOINED LEARNING
#define AFTER_RINGS ASKING
#else
#define FIRST_OF_STEPS LEARNING
#define AFTER_JOINED ASKING
#define AFTER_RINGS FINDING
#endif

inline learn_request(worker, number, learnt, later) {
    if
    :: learnt ->
        batch[worker * MOST + number] = learnt;
        batch_step[worker * MOST + number] = learnt_step;
        batch_giver[worker * MOST + number] = learnt_giver;
        behind[worker * MOST + number] = later;
#ifdef SLOTS_FIRST
        leave_queue(number)
#endif
    :: else -> skip
    fi
}

/* engine/collector/takeover.py: held_by_all(); shm/ring.py: Consumer.peek */
inline learn_tasks(worker) {
    for (count : 1 .. len(tasks[worker])) {
        tasks[worker]?ref,slot,learnt_step,learnt_giver;
        tasks[worker]!ref,slot,learnt_step,learnt_giver;
#ifndef ADOPT_WHAT_IS_HELD
        learn_request(worker, 0, ref, count > 1);
        learn_request(worker, 1, slot, count > 1)
#endif
    }
    ref = 0;
    slot = 0;
    learnt_step = 0;
    learnt_giver = 0;
    count = 0
}

inline go_to_next_worker() {
    if
    :: scanned + 1 < WORKERS -> scanned++; collector_at = (STEPS -> LEARNING : ASKING)
    :: else -> scanned = 0; collector_at = (STEPS -> AFTER_RINGS : AFTER_WORKERS)
    fi
}

/* Two idle workers are alike unless one of these tells them apart. */
#define ARE_TOLD_APART \
    (worker_at[0] != worker_at[1] || HAS(completions[0]) || HAS(completions[1]) || \
        HAS(answered[0]) || HAS(answered[1]) || frontend_at == TAKING)

inline choose_worker() {
    if
    :: idle[0] -> chosen = 0
    :: idle[1] && (!idle[0] || ARE_TOLD_APART) -> chosen = 1
    fi
}

#define IS_OVERDUE(worker) (GIVEN(worker) && !ending[worker])

proctype collector() {
end:
    do

    /* engine/collector/collector.py: Collector.step; Collector._take_reports */
    :: d_step { collector_at == STEPPING && HAS(reports[0]) -> take_reports(0) }
    :: d_step { collector_at == STEPPING && HAS(reports[1]) -> take_reports(1) }

    /* engine/collector/collector.py: Collector._take_submissions; engine/collector/dispatcher.py:
     * Dispatcher.answer_cancelled. Whether a reference that is not known is open changes for nobody but its
     * holder, so that all are looked at in one step. */
    :: d_step {
            collector_at == STEPPING && HAS(submissions) ->
            do
            :: HAS(submissions) ->
                submissions?ref;
                if
#ifdef TAKE_THE_ANSWERED
                :: !KNOWN(ref) -> take_in(ref)
#else
                :: !KNOWN(ref) && IS_OPEN(ref) -> take_in(ref); look_at(SLOT(ref))
#endif
#ifndef LOOK_AT_THE_NEW_ALONE
                :: KNOWN(ref) -> answer_cancelled(SLOT(ref))
#endif
                :: else -> skip
                fi
            :: else -> break
            od;
            ref = 0
        }

    /* engine/collector/dispatcher.py: Dispatcher._serve_retries, Dispatcher._dispatch */
    :: atomic {
            collector_at == STEPPING && (idle[0] || idle[1]) && (CAN_RETRY(0) || CAN_RETRY(1)) ->
            choose_worker();
            if
            :: CAN_RETRY(0) -> give(chosen, 0)
            :: CAN_RETRY(1) -> give(chosen, 1)
            fi;
            SEND_TASK(chosen, 0);
            chosen = 0
        }

    /* engine/collector/dispatcher.py: Dispatcher._close, Dispatcher._dispatch */
    :: atomic {
            collector_at == STEPPING && (idle[0] || idle[1]) && !again[0] && !again[1] &&
                (CAN_RUN(0) || CAN_RUN(1)) ->
            choose_worker();
            if
            :: CAN_RUN(0) -> give(chosen, 0)
            :: CAN_RUN(1) -> give(chosen, 1)
            :: CAN_RUN(0) && CAN_RUN(1) && queue_step[0] == queue_step[1] ->
                give(chosen, 0);
                give(chosen, 1)
            fi;
            SEND_TASK(chosen, 0);
            chosen = 0
        }

    /* engine/collector/dispatcher.py: Dispatcher._close, Dispatcher._dispatch; engine/collector/models.py:
     * Model.takes_next */
    :: atomic {
            collector_at == STEPPING && !again[0] && !again[1] &&
                (CAN_GO_BEHIND(0, 0) || CAN_GO_BEHIND(0, 1) || CAN_GO_BEHIND(1, 0) ||
                    CAN_GO_BEHIND(1, 1)) ->
            if
            :: CAN_GO_BEHIND(0, 0) -> prepare(0, 0)
            :: CAN_GO_BEHIND(0, 1) -> prepare(0, 1)
            :: CAN_GO_BEHIND(1, 0) -> prepare(1, 0)
            :: CAN_GO_BEHIND(1, 1) -> prepare(1, 1)
            fi
        }

    /* engine/collector/dispatcher.py: Dispatcher._drop, Dispatcher._drop_expired; engine/collector/collector.py:
     * Collector._take_in */
    :: d_step { CAN_DROP(0) -> drop(0) }
    :: d_step { CAN_DROP(1) -> drop(1) }

    /* engine/collector/collector.py: Collector._watch; engine/supervisor/process_manager.py: ProcessManager.end_hung */
    :: atomic {
            collector_at == STEPPING && hangs_left && (IS_OVERDUE(0) || IS_OVERDUE(1)) ->
            if
            :: IS_OVERDUE(0) -> chosen = 0
            :: IS_OVERDUE(1) -> chosen = 1
            fi;
            hangs_left--;
            ending[chosen] = 1;
            must_end[chosen] = (worker_at[chosen] != ABSENT);
#ifdef RETRY_ON_TIMEOUT
            take_back(chosen);
#endif
            chosen = 0
        }

    /* engine/collector/collector.py: Collector.worker_died; engine/supervisor/supervisor.py: Supervisor.on_message */
    :: d_step { collector_at == STEPPING && told_dead[0] -> reclaim(0) }
    :: d_step { collector_at == STEPPING && told_dead[1] -> reclaim(1) }

    /* JOINED of the slots that name a dead worker, one slot after the other: whether one does, and the
     * store. Then the next of its number may start. engine/collector/takeover.py: reclaim();
     * shm/joined.py: JoinedRows.forget */
    :: d_step { collector_at == CLEARING && !names && IS_TO_CLEAR(cleared) -> names = 1 }
    :: d_step {
            collector_at == CLEARING && (names || !IS_TO_CLEAR(cleared)) ->
            if
            :: names -> clear(cleared)
            :: else -> skip
            fi;
            names = 0;
            if
            :: cleared + 1 < SLOTS -> cleared = 1
            :: else ->
                reclaimed(clearing);
                clearing = 0;
                cleared = 0;
                collector_at = STEPPING;
                if
                :: takes_over -> takes_over = 0; go_to_next_worker()
                :: else -> skip
                fi
            fi
        }

    /* shm/engine_slots.py: EngineSlots.flush, the ring; again every RETRY_NS where something found no room */
    :: d_step {
            collector_at == STEPPING && !lane_to_wake && CAN_FLUSH(COLLECTOR) ->
            flush(COLLECTOR);
            lane_to_wake = 1
        }

    /* shm/engine_slots.py: EngineSlots.flush, the doorbell */
    :: d_step { lane_to_wake -> lane_to_wake = 0; lane_bell = 1 }

    /* Its death. What it was told and has not done, the next one is told. engine/supervisor/collectors.py:
     * Collectors.promote */
    :: d_step {
            collector_at != STOPPED && collector_deaths_left ->
            collector_deaths_left--;
            for (i : 0 .. WORKERS - 1) {
                ready[i] = 0;
                idle[i] = 0;
                ending[i] = 0;
#ifdef TELL_DEATHS_ONCE
                told_dead[i] = 0
#endif
            }
            for (i : 0 .. MOST - 1) { leave_queue(i) }
            for (i : 0 .. WORKERS * MOST - 1) {
                batch[i] = 0;
                batch_step[i] = 0;
                batch_giver[i] = 0;
                batch_deaths[i] = 0;
                behind[i] = 0
            }
            collector_number = collector_number + LAST_STEP;
            lose_answered(COLLECTOR);
            lane_to_wake = 0;
            clearing = 0;
            cleared = 0;
            names = 0;
            takes_over = 0;
            scanned = 0;
            collector_at = STOPPED
        }

    /* The next one. shm/segment.py: Segment.lock_collector; engine/collector/collector.py:
     * Collector._adopt, rings of submissions */
    :: d_step {
            collector_at == STOPPED ->
            do
            :: HAS(submissions) -> submissions?_
            :: else -> break
            od;
            collector_at = (STEPS -> FIRST_OF_STEPS : BEGINNING_WITH)
        }

    /* engine/collector/collector.py: Collector._adopt_worker; engine/collector/takeover.py: is_ready() */
    :: d_step {
            !STEPS && collector_at == ASKING ->
            ready[scanned] = says_ready[scanned];
            collector_at = LEARNING
        }

    /* engine/collector/collector.py: Collector._adopt_worker, the ring of tasks */
    :: d_step {
            collector_at == LEARNING ->
            learn_tasks(scanned);
            idle[scanned] = ready[scanned] && !GIVEN(scanned);
            go_to_next_worker()
        }

    /* In steps, one slot after the other, and who is ready. engine/collector/collector.py:
     * Collector._adopt, Collector._adopt_worker; engine/collector/takeover.py: held_by_all(), is_ready(); shm/joined.py:
     * JoinedRows.by_worker */
    :: d_step {
            collector_at == FINDING ->
            if
            :: IS_JOINED(scanned) -> learn_joined(scanned)
            :: else -> skip
            fi;
            if
            :: scanned + 1 < SLOTS -> scanned++
            :: else -> scanned = 0; collector_at = AFTER_JOINED
            fi
        }
    :: d_step {
            STEPS && collector_at == ASKING ->
            ready[scanned] = says_ready[scanned];
            idle[scanned] = ready[scanned] && !GIVEN(scanned);
            if
            :: scanned + 1 < WORKERS -> scanned++
            :: else -> scanned = 0; collector_at = SCANNING
            fi
        }

    /* The same, where that ring makes no sense. Nothing goes on before the worker is dead, and then nobody
     * knows what it held. engine/collector/collector.py: Collector._end_unreadable, Collector.worker_died */
    :: d_step {
            SPOILT && collector_at == LEARNING && told_dead[scanned] && HAS(tasks[scanned]) ->
            reclaim(scanned);
            if
            :: collector_at == LEARNING -> go_to_next_worker()
            :: else -> skip
            fi
        }

    /* engine/collector/collector.py: Collector._adopt_slots, one slot after the other;
     * Collector._requeue, Collector._take_in; engine/collector/dispatcher.py: Dispatcher.answer_cancelled;
     * shm/engine_slots.py: EngineSlots.published, EngineSlots.repeat */
    :: d_step {
            collector_at == SCANNING ->
            ref = REF(control[scanned], scanned);
            if
            :: control[scanned] == 0 -> skip
            :: control[scanned] && IS_OPEN(ref) && !KNOWN(ref) -> take_in(ref); look_at(scanned)
            :: control[scanned] && IS_OPEN(ref) && KNOWN(ref) -> skip
#ifdef ADOPT_ONLY_THE_OPEN
            :: else -> skip
#else
            :: else -> answered[COLLECTOR]!ref
#endif
            fi;
            if
            :: scanned + 1 < SLOTS -> scanned++
            :: else -> scanned = 0; collector_at = AFTER_SLOTS
            fi
        }
    od
}
