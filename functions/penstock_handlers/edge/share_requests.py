"""The requests of share consumers, checked by hand: JSON and binary answers have the same requests."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.filters.policy import parse_filter
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.share.record_set import Range
from penstock_core.share.share_state import parse_lock_nonce
from penstock_core.text import check_label
from penstock_handlers.edge.fields import refuse_unknown, take, take_flag, take_number, take_objects
from penstock_service.share.acknowledge import AckEntry
from penstock_service.share.acquire.acquire import AcquireWish
from penstock_service.share.dead_letters.redrive import RedriveCursor, RedriveWish, parse_redrive_cursor
from penstock_service.share.share_partitions import parse_marked_lock_id
from penstock_service.transactions.share_commits import Acceptance

# The fields of some types of acknowledgement, and how the other types leave them out.
_OPTIONS: Mapping[str, tuple[Sequence[AckType], object]] = {
    "delay_ms": ((AckType.RELEASE,), None),
    "uncounted": ((AckType.RELEASE,), False),
    "reason": ((AckType.REJECT, AckType.RELEASE), ""),
    "lock_ms": ((AckType.RENEW,), None),
}
_ACQUIRE_FIELDS = (
    "consumer_id",
    "nonce",
    "repeat",
    "max_records",
    "max_bytes",
    "lock_ms",
    "wait_ms",
    "arm",
    "topics",
    "acknowledge",
)
_LOCK_ID_LENGTH_MAX = limits.SHARE_NONCE_LENGTH_MAX + 2 * limits.SHARE_TOKEN_BYTES_MAX  # with index and mark


def parse_acquire(fields: Mapping[str, Any]) -> AcquireWish:
    """The wish for records. Raises INVALID_REQUEST that names the field and its value."""
    refuse_unknown(fields, *_ACQUIRE_FIELDS)
    consumer_id = take(fields, "consumer_id", str, "")
    if len(consumer_id) > limits.CLIENT_ID_LENGTH_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"consumer_id={shown(consumer_id)}: {limits.CLIENT_ID_LENGTH_MAX} characters at most",
        )
    check_label("consumer_id", consumer_id)
    return AcquireWish(
        nonce=None if fields.get("nonce") is None else parse_lock_nonce(take(fields, "nonce", str)),
        is_repeat=take_flag(fields, "repeat"),
        records_max=take_number(fields, "max_records", 1, limits.SHARE_RECORDS_MAX, limits.SHARE_RECORDS_DEFAULT),
        bytes_max=take_number(fields, "max_bytes", 1, limits.FETCH_BYTES_MAX, limits.FETCH_BYTES_DEFAULT_MAX),
        lock_ms=_optional_number(fields, "lock_ms", limits.SHARE_LOCK_MS_MIN, limits.SHARE_LOCK_MS_MAX),
        wait_ms=take_number(fields, "wait_ms", 0, limits.FETCH_WAIT_MS_MAX, 0),
        must_arm=take_flag(fields, "arm"),
        topics=_topics(fields),
        acknowledgements=_entries(fields) if "acknowledge" in fields else (),
        consumer_id=consumer_id,
    )


def parse_acknowledge(fields: Mapping[str, Any]) -> tuple[AckEntry, ...]:
    """The acknowledgements, one at least. Raises INVALID_REQUEST that names the field and its value."""
    refuse_unknown(fields, "acknowledge")
    entries = _entries(fields)
    if not entries:
        raise PenstockError(ErrorCode.INVALID_REQUEST, "acknowledge=[]: give one acknowledgement or more")
    return entries


def parse_redrive(fields: Mapping[str, Any]) -> RedriveWish:
    """The dead letters to move. Raises INVALID_REQUEST and INVALID_FILTER that name the field and its value."""
    refuse_unknown(fields, "to", "filter", "records_max", "cursor", "record", "drop")
    if take_flag(fields, "drop") and fields.get("to") is not None:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"drop with to={shown(fields['to'])}: a dropped letter moves nowhere"
        )
    policy = fields.get("filter")
    if policy is not None and not isinstance(policy, dict):
        raise PenstockError(ErrorCode.INVALID_FILTER, f"filter={shown(policy)}: must be a filter policy, an object")
    records_max = _optional_number(fields, "records_max", 1, limits.REDRIVE_RECORDS_MAX)
    return RedriveWish(
        to=None if fields.get("to") is None else take(fields, "to", str),
        wanted=None if policy is None else parse_filter(policy),
        records_max=limits.REDRIVE_RECORDS_MAX if records_max is None else records_max,
        cursor=None if fields.get("cursor") is None else parse_redrive_cursor(take(fields, "cursor", str)),
        only=None if fields.get("record") is None else _letter(take(fields, "record", dict)),
        is_drop=take_flag(fields, "drop"),
    )


def _letter(fields: Mapping[str, Any]) -> RedriveCursor:
    refuse_unknown(fields, "partition", "offset")
    return RedriveCursor(
        take_number(fields, "partition", 0, limits.TOPIC_PARTITIONS_MAX - 1),
        take_number(fields, "offset", 0, limits.OFFSET_MAX),
    )


def parse_acceptances(fields: Mapping[str, Any], name: str) -> tuple[Acceptance, ...]:
    """The shared records that a transaction accepts. Raises INVALID_REQUEST that names the field and its value."""
    given = take_objects(fields, name)
    _check_count(given)
    return tuple(
        Acceptance(
            group=take(each, "group", str),
            entry=_entry({"type": AckType.ACCEPT.value, **_without(each, "group", "type")}, f"{name}[{index}]"),
        )
        for index, each in enumerate(given)
    )


def _without(fields: Mapping[str, Any], taken: str, forbidden: str) -> dict[str, Any]:
    if forbidden in fields:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"unknown field {forbidden!r}: a transaction only accepts, so leave it out",
        )
    return {name: value for name, value in fields.items() if name != taken}


def _check_count(given: Sequence[object]) -> None:
    if len(given) > limits.SHARE_ACKNOWLEDGEMENTS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{len(given)} acknowledgements in one request: {limits.SHARE_ACKNOWLEDGEMENTS_MAX} at most",
            limit=limits.SHARE_ACKNOWLEDGEMENTS_MAX,
        )


def _entries(fields: Mapping[str, Any]) -> tuple[AckEntry, ...]:
    given = take_objects(fields, "acknowledge")
    _check_count(given)
    return tuple(_entry(each, f"acknowledge[{index}]") for index, each in enumerate(given))


def _entry(fields: Mapping[str, Any], where: str) -> AckEntry:
    kind = _type(take(fields, "type", str), where)
    refuse_unknown(fields, "topic", "partition", "lock_id", "offsets", "type", *_OPTIONS)
    for name, (owners, absent) in _OPTIONS.items():
        if kind not in owners and fields.get(name, absent) != absent:
            types = " or ".join(each.value for each in owners)
            raise PenstockError(
                ErrorCode.INVALID_REQUEST,
                f"{where}.{name}={shown(fields[name])}: goes with type {types}, not with {kind.value}",
            )
    text = take(fields, "lock_id", str)
    if not 0 < len(text) <= _LOCK_ID_LENGTH_MAX:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"{where}.lock_id={shown(text)}: send it as an acquire gave it")
    lock_id, generation, handed_out, mark = parse_marked_lock_id(text)
    return AckEntry(
        topic=take(fields, "topic", str),
        partition=take_number(fields, "partition", 0, limits.TOPIC_PARTITIONS_MAX - 1),
        client_lock_id=text,
        mark=mark,
        acknowledgement=Acknowledgement(
            lock_id=lock_id,
            type=kind,
            offsets=None if fields.get("offsets") is None else _ranges(take(fields, "offsets", list), where),
            delay_ms=_optional_number(fields, "delay_ms", 0, limits.SHARE_DELAY_MS_MAX),
            reason=_reason(fields, where),
            lock_ms=_optional_number(fields, "lock_ms", limits.SHARE_LOCK_MS_MIN, limits.SHARE_LOCK_MS_MAX),
            is_uncounted=take_flag(fields, "uncounted"),
            generation=generation,
            handed_out=handed_out,
        ),
    )


def _type(text: str, where: str) -> AckType:
    for each in AckType:
        if each.value == text:
            return each
    known = ", ".join(each.value for each in AckType)
    raise PenstockError(ErrorCode.INVALID_REQUEST, f"{where}.type={shown(text)}: must be one of {known}")


def _ranges(given: list[Any], where: str) -> tuple[Range, ...]:
    if not 1 <= len(given) <= limits.SHARE_RANGES_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{where}.offsets has {len(given)} ranges: give 1 to {limits.SHARE_RANGES_MAX}"
        )
    for each in given:
        is_pair = isinstance(each, list) and len(each) == 2 and all(type(end) is int for end in each)
        if not is_pair or not 0 <= each[0] < each[1] <= limits.OFFSET_MAX:
            raise PenstockError(
                ErrorCode.INVALID_REQUEST,
                f"{where}.offsets has {shown(each)}: a range is [start, end], end exclusive and above start",
            )
    return tuple((start, end) for start, end in given)


def _reason(fields: Mapping[str, Any], where: str) -> str:
    reason = take(fields, "reason", str, "")
    if len(reason.encode()) > limits.SHARE_REASON_BYTES_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{where}.reason has {len(reason.encode())} bytes: {limits.SHARE_REASON_BYTES_MAX} at most",
            limit=limits.SHARE_REASON_BYTES_MAX,
        )
    return reason


def _topics(fields: Mapping[str, Any]) -> frozenset[str] | None:
    if fields.get("topics") is None:
        return None
    names = take(fields, "topics", list)
    if not 1 <= len(names) <= limits.SHARE_TOPICS_MAX or not all(isinstance(name, str) for name in names):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"topics={shown(names)}: give 1 to {limits.SHARE_TOPICS_MAX} names, or leave it out",
        )
    return frozenset(names)


def _optional_number(fields: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    return None if fields.get(name) is None else take_number(fields, name, low, high)
