"""The stages of a consumer, of which one mirrors the other: the one that it reads, and when it goes on at another.

It begins at a stage where no topic of it is a mirror. So no member of a group joins a mirror before that is promoted,
and has the offsets of groups. It goes on elsewhere once a partition was read to its end and has moved (MOVED), or once
its stage gives no answer, and another one has taken over.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penstock.api import calls
from penstock.errors import ConnectionFailedError, UnknownTopicError
from penstock.http.async_client import AsyncClient
from penstock.http.async_transport import AsyncTransport, checked_urls, open_async_transport
from penstock.http.http_message import Response
from penstock.http.named_transport import StageFate, TransportName, offset_within, stage_to_read
from penstock.model import TopicPartition
from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError

_FAILURES_MAX = 3  # calls in a row without an answer
_LOOK_EACH_MS = 1_000
_ONE_TRY_MS = 1
_log = logging.getLogger("penstock.stages")


class _Watched:
    """A transport that counts the calls in a row without an answer."""

    def __init__(self, transport: AsyncTransport) -> None:
        self.failures = 0
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """As the transport."""
        try:
            answer = await self._transport.call(method, path, query, headers, body)
        except ConnectionFailedError:
            self.failures += 1
            raise
        self.failures = 0
        return answer

    async def close(self) -> None:
        """As the transport."""
        await self._transport.close()


def open_async_reading(
    url: str | None,
    urls: Sequence[str] | None,
    region: str | None,
    transport: AsyncTransport | TransportName | None,
) -> "AsyncTransport | AsyncStages":
    """The transport of one stage, or several that mirror one another. Raises NotConfiguredError."""
    if urls is None:
        return open_async_transport(url, region, transport)
    return AsyncStages(
        urls, [open_async_transport(each, region, transport) for each in checked_urls(urls, url, transport)]
    )


class AsyncStages:
    """`urls` are the only stages that the consumer goes to, whatever an answer says. `at` is the one that it reads.

    `ends` has its partitions, and where each was promoted there: records behind that are its own. None if none was.
    """

    def __init__(self, urls: Sequence[str], transports: Sequence[AsyncTransport]) -> None:
        self.at = 0
        self.ends: dict[TopicPartition, int | None] = {}
        self._urls = [url.rstrip("/") for url in urls]
        self._watched = [_Watched(each) for each in transports]
        self._look_ms = 0
        self._has_begun = self._has_moved = False

    @property
    def carrier(self) -> AsyncTransport:
        """The transport of the stage that is read."""
        return self._watched[self.at]

    @property
    def is_lost(self) -> bool:
        """The stage gives no answer."""
        return self._watched[self.at].failures >= _FAILURES_MAX

    def must_look(self) -> bool:
        """True if the consumer has not begun, or its stage is lost or moved: then `moves` tells where to go."""
        return (not self._has_begun or self._has_moved or self.is_lost) and monotonic_ms() >= self._look_ms

    def heard(self, error: PenstockError, topics: Collection[str]) -> bool:
        """True if the error says that one of these topics goes on at one of the stages, under its name."""
        is_known = str(error.facts.get("url", "")).rstrip("/") in self._urls
        has_moved = error.code is ErrorCode.MOVED and is_known and error.facts.get("topic") in topics
        self._has_moved = self._has_moved or has_moved
        return has_moved

    async def moves(self, topics: Collection[str]) -> bool:
        """True if another stage is to be read from now on, which is `at` then. One call for each stage and topic."""
        self._look_ms = monotonic_ms() + _LOOK_EACH_MS
        told = {number: await self._told(number, topics) for number in range(len(self._urls))}
        fates = {number: fate for number, (fate, _) in told.items()}
        before, chosen = self.at, stage_to_read(fates, self.at)
        if not self._has_begun or self._goes_on_at(*told[chosen], is_lost=fates[self.at] is StageFate.AWAY):
            self.at = chosen
        if fates[self.at] is not StageFate.AWAY:
            self.ends = told[self.at][1]
        self._has_begun = self._has_begun or fates[self.at] in (StageFate.OPEN, StageFate.MOVED)
        if self.at != before:
            self._has_moved = False
            _log.warning(
                "reading at %s, not at %s: it is %s", self._urls[self.at], self._urls[before], fates[before].value
            )
        return self.at != before

    def _goes_on_at(self, fate: StageFate, ends: Mapping[TopicPartition, int | None], *, is_lost: bool) -> bool:
        """True if what was read goes on there. A moved stage has nothing more for a reader that was elsewhere.

        From a stage that is lost it goes to none that was a source before: each promotion is behind the one before it.
        """
        known = {each: end for each, end in self.ends.items() if end is not None}
        return fate is StageFate.OPEN and not (
            is_lost and any((ends.get(each) or 0) < end for each, end in known.items())
        )

    async def _told(self, number: int, topics: Collection[str]) -> tuple[StageFate, dict[TopicPartition, int | None]]:
        """What the stage says of the topics, and their partitions there."""
        client = AsyncClient(self._watched[number], timeout_ms=_ONE_TRY_MS)
        fate, ends = StageFate.OPEN, dict[TopicPartition, int | None]()
        try:
            for topic in topics:
                found = await client.call(calls.describe_topic(topic))
                if found.topic.mirror is not None:
                    return StageFate.CLOSED, {}
                if found.topic.move is not None and found.topic.move["state"] == "moved":
                    fate = StageFate.MOVED
                ends |= {TopicPartition(topic, each.partition): each.promoted_at for each in found.offsets}
        except UnknownTopicError:
            return StageFate.CLOSED, {}
        except PenstockError:
            return StageFate.AWAY, {}
        return fate, ends

    async def copy_offsets(self, source: AsyncClient, group: str, topics: Collection[str]) -> None:
        """Give the group at the stage that is read what it has committed at the moved one. No offset goes back.

        None is behind the end of a promotion without the source, which may have had more: other records come there.
        A partition that a member there holds stays as it is: it reads some records twice.
        """
        client = AsyncClient(self.carrier)
        for topic in topics:
            try:
                found = await source.call(calls.committed_offsets(group, topic))
            except PenstockError as error:
                _log.info("offsets of group %r in %r are not copied: %s", group, topic, error)
                continue
            for partition, each in found.items():
                offset = {partition: offset_within(each.offset, self.ends.get(partition))}
                try:
                    await client.call(calls.commit_group_offsets(group, offset, each.metadata, may_go_back=False))
                except PenstockError as error:
                    _log.info("the offset of group %r in %s is not copied: %s", group, partition, error)

    async def close(self) -> None:
        """Close the connections."""
        for each in self._watched:
            await each.close()
