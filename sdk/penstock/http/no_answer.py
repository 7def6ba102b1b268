"""A call that nothing answered, and how long a client waits before it says so."""

from penstock.configuration import Configuration
from penstock.errors import ConnectionFailedError

CONNECT_TIMEOUT_S = 5
DIRECT_CONNECT_TIMEOUT_S = 2  # to Lambda, where HTTP is there, too: a call waits so long once in ten minutes
ANSWER_TIMEOUT_S = 35  # API Gateway ends a call after 30 s


class NoAnswerError(Exception):
    """Nothing answered. `maybe_sent` is false if not one byte of the request has left."""

    def __init__(self, why: str, *, maybe_sent: bool) -> None:
        super().__init__(why)
        self.maybe_sent = maybe_sent


def no_answer(configuration: Configuration, what: str, *, maybe_sent: bool) -> ConnectionFailedError:
    """The error of a call that nothing answered. If it went to the local stack, the error says how to start that."""
    is_down = configuration.is_local and not maybe_sent
    hint = "the local stack is not running: start it with `penstock dev` or `penstock local up`; " if is_down else ""
    return ConnectionFailedError(f"{hint}no answer from {configuration.url} to {what}", maybe_applied=maybe_sent)
