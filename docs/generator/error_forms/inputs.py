"""Forms of errors in shared memory, texts and arrays, from which inputs come."""

from typing import Final

from generator.error_forms.form import INVALID, Form, Group

GROUPS: Final = (
    Group(
        "Shared memory of clients",
        (
            Form(
                INVALID,
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
                INVALID,
                (
                    '"..." ...; it must ...',
                    "unknown member ...; known are ...",
                    '"..." is missing; ...',
                    '"embedding_types" has ...; ...',
                    '"..." is not supported; ...',
                    '"..." is ..., which is not supported...; leave it out',
                    '"..." is ..., but this model\'s vectors have ...',
                ),
                "A member of the body is unknown, missing or wrong.",
                "Send the members of the path's form. The text names them.",
            ),
            Form(
                INVALID,
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
                INVALID,
                ('input "..." of instance ... is no UTF-8: ...',),
                "A text is not UTF-8.",
                "Encode texts as UTF-8.",
            ),
            Form(
                INVALID,
                ('model "..." is not for ...; models for that are: ...',),
                "The model is not of the kind that the path needs.",
                "Name one of the models in the text.",
            ),
            Form(
                INVALID,
                (
                    '"n" is ...; an answer may have up to ... choices in all',
                    '"prompt" is ...; ...',
                    '"..." is for ..., and not for this path',
                    '"messages" must be a list of at least one message',
                    "message ... is no object with a role",
                    'message ... has "...", which is not supported',
                    "the content of message ... is ...; ...",
                    "the content of message ... has a part of type ...; ...",
                    "a part of message ... has no text; ...",
                    '"stop" has ...; ...',
                ),
                "A completion's prompt, messages or stops have another form, or more than is "
                "supported.",
                "Send texts, and ask for fewer choices in one request.",
            ),
            Form(
                INVALID,
                (
                    "this model's maximum context length is ...",
                    "... has no tokens",
                    "... has the token ...; this model's are from 0 to ...",
                ),
                "A prompt is empty or too long, or its tokens are not the model's.",
                "Send another prompt, or ask for fewer tokens with `max_tokens`.",
            ),
            Form(
                "ModelFailed",
                ("the model gave the token ...; its tokens are from 0 to ...",),
                "A text generator's model gives a number that is no token.",
                "Mend the model file, or say `vocab_size` in the directory's `config.json`.",
            ),
            Form(
                INVALID,
                (
                    '"..." is ..., but model "..." has no input of that name; leave it out',
                    '"..." is too large for the ... that the model takes',
                ),
                "The model file declares no such input, or one of fewer bits.",
                "Leave the member out, or declare the input.",
            ),
            Form(
                INVALID,
                (
                    'model "..." has no chat template, ...',
                    "the model's chat template refuses the messages: ...",
                    "the model's chat template cannot write these messages; ...",
                ),
                "The chat template in the model's directory is missing, or does not take these "
                "messages.",
                "Send the roles that the template expects, or a prompt to `/v1/completions`.",
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
                INVALID,
                (
                    'input "..." is ..., not a numpy array',
                    'input "..." is a masked array that masks elements; ...',
                    'input "..." holds ...',
                    "the inputs are ..., but ..., which are given as a dict of arrays by name",
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
)
