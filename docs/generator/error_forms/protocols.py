"""Forms of errors in the body of a request, and in what V1, V2 and gRPC have in it."""

from typing import Final

from generator.error_forms.form import INVALID, TOO_LARGE, Form, Group

GROUPS: Final = (
    Group(
        "Body of a request",
        (
            Form(
                INVALID,
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
                INVALID,
                (
                    "the body ended after ...",
                    "the call ended in the middle of its message",
                    "the call ended without a message; ...",
                ),
                "The connection ended before the whole body had come.",
                "Send the request again. Look for a proxy that cuts requests off.",
            ),
            Form(
                INVALID,
                (
                    "the body is no ... stream",
                    "the body ... stream",
                    "bytes follow the end of the ... stream in the body...",
                    "the body has more than ... gzip members",
                    "a message is compressed...",
                ),
                "The body is not compressed as its header says.",
                "Correct `Content-Encoding` or `grpc-encoding`, or send the body plain.",
            ),
            Form(
                TOO_LARGE,
                ("...; at most max_request_bytes = ... are accepted",),
                "The body has more bytes than allowed.",
                "Send fewer instances, or raise `max_request_bytes`.",
            ),
            Form(
                TOO_LARGE,
                ("the body has more than ... bytes...", "a message to this method has at most ..."),
                "A request other than inference has a large body.",
                "Send at most the bytes that the text names.",
            ),
            Form(
                INVALID,
                ("... is ..., not a number of seconds above 0",),
                "The header that the text names is not a positive number.",
                "Send seconds, such as `0.5`, or leave it out.",
            ),
            Form(
                INVALID,
                ("`stream` of ... is ..., not true or false",),
                "The member that asks for events has another value.",
                "Send `true` or `false`, or leave it out.",
            ),
            Form(
                INVALID,
                ("X-Priority is ..., not interactive, normal or bulk",),
                "The header names no class of requests.",
                "Send one of the three, or leave it out.",
            ),
            Form(
                INVALID,
                ("the client has gone",),
                "The client closed its connection. Only the log shows this, as 499.",
                "Raise the client's timeout.",
            ),
            Form(
                TOO_LARGE,
                ("the request's id, parameters and headers take ... bytes, ...",),
                "A model with `request` gets at most 16 KiB beside the inputs.",
                "Send shorter parameters, or put them into an input.",
            ),
            Form(
                INVALID,
                (
                    "the parameters of a request are an object...",
                    "the parameters of the request cannot be passed on: ...",
                ),
                "The parameters are not an object that a model can get.",
                "Send an object of strings, numbers and booleans.",
            ),
            Form(
                INVALID,
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
                INVALID,
                (
                    "no instances in the request...",
                    "`instances` and `inputs` exclude each other...",
                ),
                "The body needs a list `instances`, or `inputs`, and not both.",
                "Send one of them, with at least one instance.",
            ),
            Form(
                INVALID,
                (
                    "... is ..., but ...: an instance is an object with a value for each",
                    '... lacks "..."; ...',
                    "... has ..., but ...",
                ),
                "An instance does not have the inputs of the model.",
                "Send a value for each input. The text lists them.",
            ),
            Form(
                INVALID,
                (
                    'inputs["..."] is ..., but a column is a list with one value an instance',
                    "the columns in `inputs` differ in length: ...",
                ),
                "Columns must be lists of the same length.",
                "Send one value for each instance in every column.",
            ),
            Form(
                INVALID,
                (
                    "a model without declared inputs takes `instances`, a list",
                    "the inputs are ..., but model ... declares none, ...",
                    "the instances cannot be written as JSON: ...",
                ),
                "The model declares no inputs, and takes a list of JSON values.",
                "Send a list, as `instances` or to the client.",
            ),
            Form(
                INVALID,
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
                INVALID,
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
                INVALID,
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
                INVALID,
                (
                    "... stands in the request twice, in its parameters and beside them",
                    "`inputs` are for /infer; ...",
                    "the lists of input ... differ in length",
                    "input ... has lists and single values side by side",
                    "input ... has ... levels of lists; give ...",
                ),
                "A body for `/generate` has other members or lists than the model has inputs.",
                "Send a member for each input, as under [Generate](http-api.md#generate).",
            ),
            Form(
                INVALID,
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
                INVALID,
                ("events have no binary data in them; ask for outputs in JSON",),
                "A request with `Accept: text/event-stream` wants binary outputs.",
                "Ask for JSON outputs, or leave out the header.",
            ),
            Form(
                "Overloaded",
                ("the client has not read ... bytes of the answer",),
                "A client reads the parts of an answer more slowly than the model makes them.",
                "Read faster, or ask for one answer.",
            ),
            Form(
                INVALID,
                (
                    "Inference-Header-Content-Length is ...",
                    "the request says that ... bytes of binary data follow ...",
                    "... bytes follow the JSON text, but its inputs say ...",
                    "... has both data and a binary_data_size",
                    "the binary_data_size of ... is ...",
                    'the binary data of input "..." is no BYTES ...',
                    "... is ..., which V2 does not carry as JSON; send it as binary data",
                    'output "..." ..., which JSON cannot carry; ask for binary data, ...',
                    'output "..." is ..., which V2 does not carry as JSON; ask for binary data, '
                    "...",
                    'the data of input "..." has lists and single values side by side',
                ),
                "The binary data does not fit the JSON before it, or JSON cannot carry the values.",
                "Correct the lengths, or ask for binary data.",
            ),
            Form(
                INVALID,
                ("a body without JSON text ...",),
                "A raw body is one tensor without a shape.",
                "Send a JSON text before the tensors.",
            ),
            Form(
                INVALID,
                (
                    'model "..." declares no inputs, so that ...',
                    'model "..." has not one input and one output, ...',
                    'the steps of "..." keep tensors whose size depends on the request; ...',
                ),
                "The model cannot be asked in this way.",
                "Use the path or the method that the text names.",
            ),
            Form(
                INVALID,
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
                INVALID,
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
                INVALID,
                ("the tensor is to be changed", "the tensor is to be cut"),
                "Never sent: a marker between two readers of a message.",
                "None.",
            ),
        ),
    ),
)
