"""A topic of one partition with its dead-letter topic, and share groups that read it."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import click

from penstock import Admin, Consumer, TopicPartition
from penstock.model import ConsumerRecord

PATIENCE_S = 120  # for one more record to be finished


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTopic:
    """The topic and its groups."""

    admin: Admin
    name: str
    groups: list[str] = field(default_factory=list)

    @property
    def dead_letter_topic(self) -> str:
        """It has one partition, too."""
        return f"{self.name}.dead"

    def create_group(self, **config: object) -> str:
        """A new share group, by its name."""
        group = f"{self.name}.{len(self.groups)}"
        self.admin.create_share_group(group, self.name, config)
        self.groups.append(group)
        return group

    def unfinished(self, group: str) -> int:
        """The records that the group has not finished."""
        return sum(each.lag for each in self.admin.describe_share_group(group).partitions)

    def wait_until_below(self, group: str, records: int) -> None:
        """Wait until so few records are unfinished. Raises ClickException if the group gets nowhere."""
        least, deadline_s = self.unfinished(group), time.monotonic() + PATIENCE_S
        while least >= records:
            time.sleep(0.1)
            left = self.unfinished(group)
            if left < least:
                least, deadline_s = left, time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline_s:
                raise click.ClickException(f"{least:,} records are unfinished, and no more are finished")

    def wait_until_finished(self, group: str) -> None:
        """Wait until the group has finished all records. Raises as `wait_until_below`."""
        self.wait_until_below(group, 1)

    def dead_letters(self) -> list[ConsumerRecord]:
        """All records of the dead-letter topic."""
        where, found = TopicPartition(self.dead_letter_topic, 0), list[ConsumerRecord]()
        with Consumer() as consumer:
            consumer.assign([where])
            end = consumer.end_offsets([where])[where]
            while consumer.position(where) < end:
                found += consumer.poll()
        return found


@contextmanager
def shared_topic() -> Iterator[SharedTopic]:
    """A topic with its dead-letter topic. They and the groups are deleted afterwards."""
    with Admin() as admin:
        shared = SharedTopic(admin=admin, name=f"share-{secrets.token_hex(4)}")
        topics = (shared.name, shared.dead_letter_topic)
        for topic in topics:
            admin.create_topic(topic, partitions=1)
        yield shared
        for group in shared.groups:
            admin.delete_share_group(group)
        for topic in topics:
            admin.delete_topic(topic)
