"""Forms of error messages with cause and remedy; ``...`` stands for any text."""

from typing import Final, NamedTuple


class Form(NamedTuple):
    """Messages that share cause and remedy.

    Attributes:
        error: name of the error's class.
        texts: forms of the messages.
        cause: why a request gets one.
        remedy: what to do.
    """

    error: str
    texts: tuple[str, ...]
    cause: str
    remedy: str


class Group(NamedTuple):
    """Forms under one heading."""

    title: str
    forms: tuple[Form, ...]


_INVALID: Final = "InvalidRequest"
_TOO_LARGE: Final = "RequestTooLarge"

GROUPS: Final = (
    Group(
        "Body of a request",
        (
            Form(
                _INVALID,
                (
                    "can't unmarshal body: ...",
                    "the request is no JSON: ...",
                    "the body is no JSON in UTF-8: ...",
                    "the request is ..., not an object",
                    "the request is to be an object...",
                    "the body must be a JSON object",
                ),
                "The body is not the JSON that the path takes.",
                "Send a JSON object. The text names the place of the error.",
            ),
            Form(
                _INVALID,
                ("the body ended after ...", "the call ended in the middle of its message"),
                "The connection ended before the whole body had come.",
                "Send the request again. Look for a proxy that cuts requests off.",
            ),
            Form(
                _INVALID,
                (
                    "the body is no ... stream",
                    "the body ... stream",
                    "bytes follow the end of the deflate stream in the body",
                    "the body has more than ... gzip members",
                    "a message is compressed...",
                ),
                "The body is not compressed as its header says.",
                "Correct `Content-Encoding` or `grpc-encoding`, or send the body plain.",
            ),
            Form(
                _TOO_LARGE,
                ("...; at most max_request_bytes = ... are accepted",),
                "The body has more bytes than allowed.",
                "Send fewer instances, or raise `max_request_bytes`.",
            ),
            Form(
                _TOO_LARGE,
                ("the body has more than ... bytes...", "a message to this method has at most ..."),
                "A request other than inference has a large body.",
                "Send at most the bytes that the text names.",
            ),
            Form(
                _INVALID,
                ("X-Request-Timeout is ..., not a number of seconds above 0",),
                "The header is not a positive number.",
                "Send seconds, such as `0.5`, or leave it out.",
            ),
            Form(
                _INVALID,
                ("X-Priority is ..., not interactive, normal or bulk",),
                "The header names no class of requests.",
                "Send one of the three, or leave it out.",
            ),
            Form(
                _INVALID,
                ("the client has gone",),
                "The client closed its connection. Only the log shows this, as 499.",
                "Raise the client's timeout.",
            ),
            Form(
                _TOO_LARGE,
                ("the request's id, parameters and headers take ... bytes, ...",),
                "A model with `request` gets at most 16 KiB beside the inputs.",
                "Send shorter parameters, or put them into an input.",
            ),
            Form(
                _INVALID,
                (
                    "the parameters of a request are an object...",
                    "the parameters of the request cannot be passed on: ...",
                ),
                "The parameters are not an object that a model can get.",
                "Send an object of strings, numbers and booleans.",
            ),
            Form(
                _INVALID,
                ("a request with more than ... of JSON has no tensors in shared memory; ...",),
                "A large JSON text goes to another process, which has no shared memory.",
                "Send all tensors as binary data, or all in shared memory.",
            ),
        ),
    ),
    Group(
        "V1",
        (
            Form(
                _INVALID,
                (
                    "no instances in the request...",
                    "`instances` and `inputs` exclude each other...",
                ),
                "The body needs a list `instances`, or `inputs`, and not both.",
                "Send one of them, with at least one instance.",
            ),
            Form(
                _INVALID,
                (
                    "... is ..., but ...: an instance is an object with a value for each",
                    '... lacks "..."; ...',
                    "... has ..., but ...",
                ),
                "An instance does not have the inputs of the model.",
                "Send a value for each input. The text lists them.",
            ),
            Form(
                _INVALID,
                (
                    'inputs["..."] is ..., but a column is a list with one value an instance',
                    "the columns in `inputs` differ in length: ...",
                ),
                "Columns must be lists of the same length.",
                "Send one value for each instance in every column.",
            ),
            Form(
                _INVALID,
                (
                    "a model without declared inputs takes `instances`, a list",
                    "the inputs are a ..., but model ... declares none, ...",
                    "the instances cannot be written as JSON: ...",
                ),
                "The model declares no inputs, and takes a list of JSON values.",
                "Send a list, as `instances` or to the client.",
            ),
            Form(
                _INVALID,
                ("the request leaves out input ... for ... instances, ...",),
                "The default of an input would take too much memory.",
                "Send the input, or fewer instances.",
            ),
        ),
    ),
    Group(
        "V2 and gRPC",
        (
            Form(
                _INVALID,
                (
                    'input "..." has shape ...',
                    "the first sizes of the shapes differ: ...",
                    'input "..." has ... elements, but shape ...',
                    'input "..." has ... bytes of ..., but ...',
                    'input "..." ...; a shape is a list of whole numbers from 0',
                    "the body has ... bytes, but ..., of which one instance takes ...",
                    "the request has no instances, ...",
                    "the request has ... instances without any element; ...",
                ),
                "Shape, datatype and data do not fit each other or the model.",
                "Send the shape that the text names. The first size is the batch.",
            ),
            Form(
                _INVALID,
                (
                    'input "..." ..., but ...',
                    "inputs[...] is ..., but ...",
                    "the request lacks input ...",
                    "input ... stands in the request twice",
                    "...[...] is ..., but ... takes BYTES, strings",
                ),
                "An input is missing, unknown, repeated, or has another datatype.",
                "Send the inputs of the model's metadata.",
            ),
            Form(
                _INVALID,
                (
                    "inputs[...] ...",
                    "outputs[...] ...",
                    "`outputs` is ..., not a list",
                    "the request ..., which is a list of tensors...",
                    "the request's id is ..., not a string",
                    "parameter ...",
                    "the parameters of ... are ..., not an object",
                    "... has ...; its values are a list, or binary data",
                    "... is ..., not a whole number from ... to ...",
                    '"parameters" of the request is to be an object, ...',
                    '"ready" of the request is to be true or false, ...',
                ),
                "A member of the request has the wrong type.",
                "Follow the Open Inference Protocol. The text names the member.",
            ),
            Form(
                _INVALID,
                (
                    "Inference-Header-Content-Length is ...",
                    "the request says that ... bytes of binary data follow ...",
                    "... bytes follow the JSON text, but its inputs say ...",
                    "... has both data and a binary_data_size",
                    "the binary_data_size of ... is ...",
                    'the binary data of input "..." is no BYTES ...',
                    "... is ..., which V2 does not carry as JSON; send it as binary data",
                    'output "..." ..., which JSON cannot carry; ask for binary data',
                    'output "..." is ..., which V2 does not carry as JSON; ask for binary data',
                    'the data of input "..." has lists and single values side by side',
                ),
                "The binary data does not fit the JSON before it, or JSON cannot carry the values.",
                "Correct the lengths, or ask for binary data.",
            ),
            Form(
                _INVALID,
                ("a body without JSON text ...",),
                "A raw body is one tensor without a shape.",
                "Send a JSON text before the tensors.",
            ),
            Form(
                _INVALID,
                (
                    'model "..." declares no inputs, so that ...',
                    'model "..." has not one input and one output, ...',
                    'the steps of "..." keep tensors whose size depends on the request; ...',
                ),
                "The model cannot be asked in this way.",
                "Use the path or the method that the text names.",
            ),
            Form(
                _INVALID,
                (
                    "contents field must not be specified when using raw_input_contents ...",
                    'input "..." is ..., which has no typed contents; ...',
                    'input "..." has no values: ...',
                    'input "..." has values in ..., but those of ... stand in ...',
                    "the request has ... raw_input_contents, but ... inputs ...",
                    "the message is no ModelInferRequest",
                    "the message has more than ... fields, which is the most",
                ),
                "A gRPC message has its values in the wrong fields.",
                "Send all values in `raw_input_contents`, or all in typed contents.",
            ),
            Form(
                _INVALID,
                ('output "..." is wanted twice', 'output "..." is ..., which has no classes'),
                "An output is requested twice, or its datatype cannot be classified.",
                "Request each output once, and classes of numbers only.",
            ),
            Form(
                "NotSupported",
                (
                    "a call of this method has one message",
                    "messages can be compressed as ... alone",
                ),
                "The method or the compression is not supported over gRPC.",
                "Use one message, and gzip or deflate.",
            ),
            Form(
                _INVALID,
                ("the tensor is to be changed", "the tensor is to be cut"),
                "Never sent: a marker between two readers of a message.",
                "None.",
            ),
        ),
    ),
    Group(
        "Shared memory of clients",
        (
            Form(
                _INVALID,
                (
                    "... bytes from offset ... are not within ...",
                    'output "..." has ... bytes, more than the ... of shared memory ...',
                    'the object of shared memory region "..." ...',
                    "... has no ..., which goes with ... and shared_memory_offset",
                    "... is in shared memory and has ... as well",
                    'output "..." is in shared memory and ... as well',
                    "the shared_memory_region of ... is ..., not a string",
                    "the request lacks its byte_size, ...",
                    "the request ..., which is a string, the name of the object",
                    "the name of a shared memory region is ...",
                    "the key ...",
                ),
                "The region, its name, or the place in it is not allowed.",
                "Register the region anew, with a name that `shared_memory_prefixes` allows.",
            ),
            Form(
                "MemoryNotFound",
                (
                    'no ...shared memory region "..." is registered',
                    "there is no shared memory object ...",
                ),
                "The region is not registered, or its object does not exist.",
                "Create the object, then register the region.",
            ),
            Form(
                "RegionTaken",
                ('shared memory region "..." is registered already; unregister it first',),
                "Another registration has this name.",
                "Unregister it, or choose another name.",
            ),
            Form(
                "NotSupported",
                (
                    "shared memory is switched off here; ...",
                    "CUDA shared memory is not supported; ...",
                ),
                "The engine does not offer this kind of shared memory.",
                "Set `shared_memory_prefixes`, and use system shared memory.",
            ),
            Form(
                "Overloaded",
                (
                    "... shared memory regions are registered, and there is no room for more; ...",
                    "another shared memory region is being registered; try again",
                    "this server has too much open to open another object",
                ),
                "There is no room for another region now.",
                "Unregister regions, or try again.",
            ),
        ),
    ),
    Group(
        "Texts",
        (
            Form(
                _INVALID,
                (
                    '"..." ...; it must ...',
                    "unknown member ...; known are ...",
                    '"..." is missing; ...',
                    '"embedding_types" has ...; ...',
                    '"..." is not supported; ...',
                    '"..." is ..., but this model\'s vectors have ...',
                ),
                "A member of the body is unknown, missing or wrong.",
                "Send the members of the path's form. The text names them.",
            ),
            Form(
                _INVALID,
                (
                    "text ... is empty: it has no tokens",
                    "text ... has ... characters, but this model takes at most ... tokens; ...",
                    "input ... has ... tokens; ...",
                    "input ... has the token ...",
                ),
                "A text or a list of tokens is empty, too long, or not of this model.",
                "Send a shorter one, or set `truncate`.",
            ),
            Form(
                _INVALID,
                ('input "..." of instance ... is no UTF-8: ...',),
                "A text is not UTF-8.",
                "Encode texts as UTF-8.",
            ),
            Form(
                _INVALID,
                ('model "..." is not for ...; models for that are: ...',),
                "The model is not of the kind that the path needs.",
                "Name one of the models in the text.",
            ),
            Form(
                "Overloaded",
                ("so many texts wait to be made tokens of ...",),
                "Texts come faster than they are tokenized.",
                "Try again later, or raise `frontends`.",
            ),
        ),
    ),
    Group(
        "Client arrays",
        (
            Form(
                _INVALID,
                (
                    'input "..." is a ..., not a numpy array',
                    'input "..." is a masked array that masks elements; ...',
                    'input "..." holds ...',
                    "the inputs are a ..., but ..., which are given as a dict of arrays by name",
                ),
                "The client got something other than arrays of the inputs' datatypes.",
                "Pass a numpy array, or a dict of arrays by name.",
            ),
            Form(
                "ClientClosed",
                ("the client was closed", "this client belongs to process ..., ..."),
                "The client is closed, or was made before a fork.",
                "Make a new client in this process.",
            ),
            Form(
                "EngineGone",
                ("the engine has stopped...",),
                "The engine ended while the request was in flight.",
                "Send it again; a client opened by name follows a restart.",
            ),
            Form(
                "Interrupted",
                (
                    "another thread was interrupted ...",
                    "nobody waits for this request any more",
                    "the thread that ...",
                ),
                "A thread that shared the client was interrupted or ended.",
                "Send the request again.",
            ),
        ),
    ),
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
                _INVALID,
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
                _INVALID,
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
                _TOO_LARGE,
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
                _INVALID,
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
