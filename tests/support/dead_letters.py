"""Dead letters, as a history has them: what the headers of a record in a dead-letter topic tell."""

from penstock_core.records.codec import Headers
from penstock_core.share.dead_letter import HEADER_PREFIX
from tests.history.format import DeadLetter


def dead_letter_of(offset: int, name: str, key: bytes | None, headers: Headers) -> DeadLetter:
    """The dead letter at this offset, whose value is known by `name`."""
    told = {
        header.removeprefix(HEADER_PREFIX): (value or b"").decode()
        for header, value in headers
        if header.startswith(HEADER_PREFIX)
    }
    return DeadLetter(
        offset=offset,
        value=name,
        key=None if key is None else key.decode(),
        origin=(told["topic"], int(told["partition"])),
        origin_offset=int(told["offset"]),
        group=told.get("group") or told["subscription"],
        deliveries=int(told["deliveries"]),
        reason=told["reason"],
    )
