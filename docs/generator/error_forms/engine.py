"""Forms of errors of models, of load and time, and of model servers."""

from typing import Final

from generator.error_forms.form import INVALID, TOO_LARGE, Form, Group

GROUPS: Final = (
    Group(
        "Models",
        (
            Form(
                "ModelNotFound",
                (
                    "Request for unknown model: ...",
                    "model ... has version ... and no version ...",
                    'model "..." has no verb "..."; use :predict',
                    "failed to ... ...: there is no such model",
                ),
                "No model has this name, version or verb.",
                "Compare the path with `GET /v2/models`.",
            ),
            Form(
                "ModelNotReady",
                ('model "..." is not ready: ...',),
                "No worker holds the model now. The text has the reason, see below.",
                "Send it again after `Retry-After`. If it stays so, read the log.",
            ),
            Form(
                "LimitReached",
                ("the limit of ... for one client is reached; try again in ... s",),
                "The client has asked for as much as one client may.",
                "Send it again after `Retry-After`, or raise the limit: `account_in_flight`, "
                "`account_requests_per_s` or `account_model_s_per_s`.",
            ),
            Form(
                "ModelFailed",
                (
                    "model ... raised ...; the server's log has more",
                    "model ... ran out of memory; the server's log has more",
                    "model ...: output ...",
                    "the answer is no JSON list...",
                    "the answer is not UTF-8",
                    "the answer holds NaN or Infinity, ...",
                    "the model's answer takes ... bytes, ...",
                    "size of prediction is not equal to the size of instances",
                ),
                "The model raised an exception, or its result is not as declared or has no room.",
                "Read the traceback in the log. For room, raise `lane_bytes`.",
            ),
            Form(
                INVALID,
                ("model ...: the request costs ..., and max_batch_cost is ...",),
                "By the model's `cost`, a row costs more than all live rows of a worker may.",
                "Send a smaller request, or raise `max_batch_cost`.",
            ),
            Form(
                "WrongCount",
                ("size of prediction is not equal to the size of instances",),
                "The model returned another number of rows than it got.",
                "Return one row for each instance.",
            ),
            Form(
                "LoadFailed",
                ("failed to ... ...: ...",),
                "A load, unload or reload of a model failed; the old one serves on.",
                "The text has the reason, as `ringbatch check --load` would.",
            ),
            Form(
                INVALID,
                ("failed to load ...: ...",),
                "The parameters of a load are not accepted.",
                "Send no files, and `config` with `max_batch_size` alone.",
            ),
            Form(
                "NotSupported",
                ("loading and unloading models is not supported here; ...",),
                "Clients may not change models.",
                "Set `model_control = true`, or use `ringbatch reload`.",
            ),
            Form(
                "NotSupported",
                ("... is ... and cannot be set to ... while the server runs...",),
                "Settings of tracing and logging are read only.",
                "Change the configuration, and restart.",
            ),
            Form(
                INVALID,
                ("the settings are ..., not an object", "there is no setting ...; there are ..."),
                "A request for trace or log settings is wrong.",
                "Send an object of known settings.",
            ),
        ),
    ),
    Group(
        "Load and time",
        (
            Form(
                "Overloaded",
                ("too many requests are waiting, [server] ... is used up...",),
                "The lane's slots or memory are taken.",
                "Send later, add workers, or raise the setting that the text names.",
            ),
            Form(
                "Overloaded",
                ("so many requests wait that an answer would take ... s, too long for ...",),
                "The answer would come after the deadline.",
                "Send later, add workers, or raise `timeout_s`.",
            ),
            Form(
                "Overloaded",
                ("the client has taken nothing for stream_stall_s = ..., and parts wait",),
                "The client reads nothing of an answer in parts.",
                "Read the answer as it comes, or raise `stream_stall_s`.",
            ),
            Form(
                "Overloaded",
                ("so many requests wait that the first part would take ... s, too long for ...",),
                "The first part of the answer would come too late.",
                "Send later, add workers or places, or raise `first_part_timeout_s`.",
            ),
            Form(
                "Overloaded",
                (
                    "so many large requests wait to be read ...",
                    "so many large requests are being received ...",
                ),
                "Large bodies fill the memory for bodies.",
                "Send later, or fewer at once.",
            ),
            Form(
                "Overloaded",
                ("too many connections are open; max_connections = ...",),
                "The frontend has no room for another connection.",
                "Reuse connections, or raise `max_connections` or `frontends`.",
            ),
            Form(
                "Overloaded",
                ("the system has no thread for this request now; try again later",),
                "The host has no thread or memory left for it.",
                "Raise `TasksMax=` or `ulimit -u`.",
            ),
            Form(
                TOO_LARGE,
                (
                    "the request takes ... and its answer ..., more than there is room for; ...",
                    "the request has ... instances, which make ... batches; at most ... at once",
                ),
                "One request would take more than a lane, or more batches than allowed.",
                "Send fewer instances, or raise `lane_bytes` or `max_in_flight`.",
            ),
            Form(
                "DeadlineExceeded",
                (
                    "no answer came within ...",
                    "the body did not come within ...",
                    "the call has lasted as long as its client waits",
                ),
                "The deadline passed.",
                "Find the phase in the access log, and see `timeout_s` and `workers`.",
            ),
            Form(
                "DeadlineExceeded",
                (
                    "no part of the answer came within ...",
                    "no further part of the answer came within ...",
                ),
                "A part of the answer was late.",
                "See `first_part_timeout_s` and `part_gap_timeout_s`.",
            ),
        ),
    ),
    Group(
        "Model servers",
        (
            Form(
                "ModelServerDown",
                ("the model server cannot be reached: ...",),
                "Nothing listens at the address.",
                "Start the server, or correct `path`.",
            ),
            Form(
                "ModelServerBroken",
                ("the model server ...", "the model server's header ... has control characters"),
                "The server's answer cannot be used.",
                "Read the log of the model server.",
            ),
            Form(
                "DeadlineExceeded",
                ("the model server did not answer in time",),
                "The server was slower than `timeout_s`.",
                "Raise `timeout_s`, or add servers.",
            ),
            Form(
                INVALID,
                (
                    "the path has characters that a URL has only percent-encoded",
                    "the target of the request is no path",
                ),
                "A request that would be passed on has no legal path.",
                "Encode the path.",
            ),
        ),
    ),
)
