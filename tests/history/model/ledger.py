"""The ledger notes of every value whether it was sent, acknowledged and read.

Finds lost-write, aborted-read, unwritten-read, precommitted-read and unseen. It knows the duplicates that retries
explain. It keeps one small integer of flags per value, so that a million records fit.
"""

from collections.abc import Iterator
from dataclasses import replace

from tests.history.checks.truncation import Truncations
from tests.history.checks.version_order import VersionOrder
from tests.history.format import Acquired, Function, Handling, Poll, Schedule, Send, TopicPartition, Value
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.model.operations import Operation

FAILED = 1  # some send of it certainly had no effect
MAYBE = 2  # some send of it may have had one, or was acknowledged by too few zones to be kept
KEPT = 4  # acknowledged by a quorum of zones, or proved: must be readable (G1)
READ = 8  # some poll returned it
RESENT = 16  # more than one operation that did not fail sent it

ANY_NUMBER = 1 << 60  # of copies, if the client did not count its attempts


class Ledger:
    """Flags of every value of every partition."""

    def __init__(self) -> None:
        self._flags: dict[TopicPartition, dict[Value, int]] = {}
        self._copies: dict[tuple[TopicPartition, Value], int] = {}  # of values with more than one attempt
        self._unsettled: list[Operation] = []  # maybes, and acknowledged sends without offset
        self._inferred_offset: dict[tuple[TopicPartition, Value], int] = {}
        self._read_own: list[tuple[Operation, TopicPartition, int, Value]] = []
        self._transactions: list[list[Send]] = []  # of several records

    def observe(self, operation: Operation) -> None:
        has_sent = lacks_offset = False
        for op in operation.ops:
            if type(op) is Poll or type(op) is Acquired or type(op) is Handling:
                flags = self._flags_in(op.where)
                for _, value in op.records:
                    flags[value] = flags.get(value, 0) | READ
            elif type(op) is Schedule:  # `Delays` judges what of it must come
                flags = self._flags_in(op.where)
                flags[op.value] = flags.get(op.value, 0) | (FAILED if operation.has_failed else MAYBE)
            elif type(op) is Send:
                has_sent = True
                lacks_offset = lacks_offset or op.offset is None
                self._send(operation, op)
        if not has_sent or operation.has_failed:
            return
        if lacks_offset or not operation.is_ok:
            self._unsettled.append(operation)
        if operation.function is Function.TXN:
            if len(operation.sends) > 1:
                self._transactions.append(operation.sends)
            sent = {(send.where, send.value) for send in operation.sends}
            self._read_own.extend(
                (operation, poll.where, offset, value)
                for poll in operation.polls
                for offset, value in poll.records
                if (poll.where, value) in sent
            )

    def settle(self, order: VersionOrder) -> None:
        """Settle the maybes: if a poll returned one record of an append or a transaction, all of it is there (G3, G5).

        The offsets of its records then count. Offsets in an append are dense, so unknown ones follow from known ones.
        """
        for operation in self._unsettled:
            by_partition = operation.sends_by_partition()
            is_proved = {where: self._is_proved(sends) for where, sends in by_partition.items()}
            is_atomic = operation.function is Function.TXN
            for where, sends in by_partition.items():
                if not operation.is_ok and not (any(is_proved.values()) if is_atomic else is_proved[where]):
                    continue
                for send in sends:
                    if operation.asks_durability:
                        self._flags[where][send.value] |= KEPT
                    if send.offset is not None:
                        order[where].add(send.offset, send.value)
                self._infer_offsets(order, where, sends)

    def may_be_missing(self, where: TopicPartition, value: Value) -> bool:
        """Return whether no poll returned `value`, and no acknowledgement promises that one can."""
        return not self._flags_in(where).get(value, 0) & (KEPT | READ)

    def has_taken_effect(self, where: TopicPartition, value: Value) -> bool:
        """Return whether `value` was read or acknowledged, or a record that was sent with it proves it."""
        return bool(self._flags_in(where).get(value, 0) & (KEPT | READ))

    def is_proved(self, send: Send) -> bool:
        """Return whether `send` was read, and no other operation sent that record."""
        return self._is_proved([send])

    def was_resent(self, where: TopicPartition, value: Value) -> bool:
        """Return whether several operations that did not fail sent `value`."""
        return bool(self._flags_in(where).get(value, 0) & RESENT)

    def copies_explained(self, where: TopicPartition, value: Value) -> int:
        """Return the number of copies of `value` that a producer without idempotence may have left by its attempts."""
        return self._copies.get((where, value), 1)

    def anomalies(self, order: VersionOrder, truncations: Truncations, *, was_read_to_end: bool) -> Iterator[Anomaly]:
        """Call `settle` first. If a record of a transaction that was read is missing, the transaction is torn.

        A record that may still come is no such record.
        """
        read_in_part = self._read_in_part()
        for where, flags in self._flags.items():
            for value, flag in flags.items():
                if flag & READ:
                    if not flag & (KEPT | MAYBE):
                        yield self._wrong_read(order, where, value, flag)
                elif flag & KEPT:
                    for missing in self._missing(order, truncations, where, value):
                        is_torn = (where, value) in read_in_part and (
                            was_read_to_end or missing.kind is not Kind.UNSEEN
                        )
                        yield replace(missing, kind=Kind.TORN_TRANSACTION) if is_torn else missing
        for operation, where, offset, value in self._read_own:
            if not self.was_resent(where, value):
                text = f"{value!r} was polled at offset {offset} by the transaction that sent it"
                yield Anomaly(
                    kind=Kind.PRECOMMITTED_READ,
                    where=where,
                    text=text,
                    offsets=(offset,),
                    values=(value,),
                    lines=(operation.line,),
                )

    def _read_in_part(self) -> set[tuple[TopicPartition, Value]]:
        """Return the records of transactions of which some records were read, and some were not."""
        found: set[tuple[TopicPartition, Value]] = set()
        for sends in self._transactions:
            was_read = [bool(self._flags[send.where][send.value] & READ) for send in sends]
            if any(was_read) and not all(was_read):
                found.update((send.where, send.value) for send in sends)
        return found

    def _flags_in(self, where: TopicPartition) -> dict[Value, int]:
        flags = self._flags.get(where)
        if flags is None:
            flags = self._flags[where] = {}
        return flags

    def _send(self, operation: Operation, send: Send) -> None:
        flags = self._flags_in(send.where)
        before = flags.get(send.value, 0)
        if operation.has_failed:
            flags[send.value] = before | FAILED
            return
        was_sent = before & (KEPT | MAYBE)
        promise = KEPT if operation.is_ok and operation.asks_durability else MAYBE
        flags[send.value] = before | promise | (RESENT if was_sent else 0)
        attempts = ANY_NUMBER if operation.attempts is None else operation.attempts
        if was_sent or attempts != 1:
            key = send.where, send.value
            self._copies[key] = attempts + (self._copies.get(key, 1) if was_sent else 0)

    def _is_proved(self, sends: list[Send]) -> bool:
        return any(self._flags[send.where][send.value] & (READ | RESENT) == READ for send in sends)

    def _infer_offsets(self, order: VersionOrder, where: TopicPartition, sends: list[Send]) -> None:
        for index, send in enumerate(sends):
            offset = order[where].only_offset_of(send.value)
            if offset is not None and not self.was_resent(where, send.value):
                base_offset = offset - index
                break
        else:
            return
        for index, send in enumerate(sends):
            self._inferred_offset[where, send.value] = base_offset + index

    def _wrong_read(self, order: VersionOrder, where: TopicPartition, value: Value, flag: int) -> Anomaly:
        kind, text = (
            (Kind.ABORTED_READ, f"{value!r} was polled, but every send of it failed")
            if flag & FAILED
            else (Kind.UNWRITTEN_READ, f"{value!r} was polled, but nobody sent it to this partition")
        )
        return Anomaly(
            kind=kind, where=where, text=text, offsets=tuple(order[where].offsets_of(value)), values=(value,)
        )

    def _missing(
        self, order: VersionOrder, truncations: Truncations, where: TopicPartition, value: Value
    ) -> Iterator[Anomaly]:
        log = order[where]
        offset = log.offset_of.get(value, self._inferred_offset.get((where, value)))
        start_offset = truncations.start_offset(where)
        if start_offset > (0 if offset is None else offset):
            return
        kind, text = Kind.UNSEEN, f"{value!r} was acknowledged{_at(offset)} and never polled"
        if offset is not None and offset <= log.last_read_offset:
            kind = Kind.LOST_WRITE
            text += f", though offset {log.last_read_offset} was"
        offsets = () if offset is None else (offset,)
        yield Anomaly(kind=kind, where=where, text=text, offsets=offsets, values=(value,))


def _at(offset: int | None) -> str:
    return "" if offset is None else f" at offset {offset}"
