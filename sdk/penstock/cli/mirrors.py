"""`penstock mirrors`: create, list, describe and delete mirrors, promote mirrored topics, begin them anew."""

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_subscriptions, complete_topics
from penstock.cli.options.settings import YES, confirm
from penstock.cli.options.times import DURATION
from penstock.cli.service import IF_NOT_EXISTS, Service, service_command, time_text, told_to_exist
from penstock.cli.tables import show_table
from penstock.http.transport import open_transport
from penstock.model import GroupPlace, MovedTopic, PromotedTopic, Topic, TopicPartition
from penstock.model.push import MirroredTopic, Subscription, mirrored_topics
from penstock.model.share import ShareGroupPartition
from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.text import counted

_STAGE = "stage"
_COLUMNS = ("topic", "state", "epoch", "lag", "behind", "last success")
_POLL_S = 0.5
_POLLS_OF_A_START = 20


@click.group()
def mirrors() -> None:
    """Repeat topics in another stage, offset by offset, and let the other stage take over."""


@mirrors.command()
@click.argument("name")
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--to", "stage_url", metavar="URL", required=True, help="The URL of the stage that mirrors the topics.")
@click.option("--to-region", metavar="REGION", default="", help="The region of that stage.")
@click.option("--role", metavar="ARN", default="", help="The role of that stage that this one may assume.")
@click.option("--prefix", metavar="TEXT", default="", help="Begin the names of the mirrored topics with this.")
@click.option("--source", metavar="URL", default="", help="The URL of this stage, for clients of the mirror.")
@IF_NOT_EXISTS
@service_command
def create(
    service: Service,
    name: str,
    topics: tuple[str, ...],
    stage_url: str,
    to_region: str,
    role: str,
    prefix: str,
    source: str,
    if_not_exists: bool,
) -> None:
    """Let another stage mirror TOPICS of this one, under the name NAME. It is a subscription of this stage.

    For example: penstock mirrors create dr orders --to https://MIRROR_API
    """
    admin = Admin(transport=service.transport)
    if if_not_exists and told_to_exist(service, name, lambda each: admin.describe_subscription(each).subscription):
        return
    made = admin.create_mirror(name, topics, stage_url, region=to_region, role=role, prefix=prefix, source=source)
    service.say(asdict(made), _text(made))


@mirrors.command("list")
@service_command
def list_mirrors(service: Service) -> None:
    """List the topics that this stage pushes to its mirrors, and the topics of this stage that are mirrors.

    For example: penstock mirrors list
    """
    admin = Admin(transport=service.transport)
    topics = admin.list_topics()
    names = [each.name for each in admin.list_subscriptions() if _STAGE in each.target]
    pushed = [(found.subscription, mirrored_topics(found, topics)) for found in map(admin.describe_subscription, names)]
    taken = [(each.mirror, each) for each in topics if each.mirror is not None]
    rows: list[Sequence[Any]] = [
        (mirror.name, "pushes", *_row(mirror, each), mirror.target[_STAGE]["url"])
        for mirror, of_mirror in pushed
        for each in of_mirror
    ]
    rows += [
        (mirror["name"], "takes", each.name, "mirror", *[None] * 4, mirror["source"] or None) for mirror, each in taken
    ]
    service.show(
        {
            "pushes": [{**asdict(mirror), "mirrored": [asdict(each) for each in of]} for mirror, of in pushed],
            "mirrored": [{"topic": each.name, "mirror": dict(mirror)} for mirror, each in taken],
        },
        title="mirrors",
        columns=("name", "this stage", *_COLUMNS, "other stage"),
        rows=rows,
    )


@mirrors.command()
@click.argument("name", shell_complete=complete_subscriptions)
@service_command
def describe(service: Service, name: str) -> None:
    """Show how far the mirror NAME is behind each topic and partition of this stage, and the epochs of the topics.

    For example: penstock mirrors describe dr
    """
    admin = Admin(transport=service.transport)
    found = admin.describe_subscription(name)
    _check_mirror(found.subscription)
    mirrored = mirrored_topics(found, admin.list_topics())
    if not service.as_json:
        show_table(_text(found.subscription), _COLUMNS, [_row(found.subscription, each) for each in mirrored])
    service.show(
        {
            **asdict(found.subscription),
            "lag": found.lag,
            "oldest_age_ms": found.oldest_age_ms,
            "mirrored": [asdict(each) for each in mirrored],
            "partitions": [asdict(each) for each in found.partitions],
        },
        title=f"partitions; lag {found.lag}",
        columns=("topic", "partition", "offset", "lag", "behind", "last success", "error"),
        rows=[
            (
                each.topic,
                each.partition,
                each.offset,
                each.lag,
                _span(each.oldest_age_ms),
                _time(each.succeeded_ms),
                each.last_error,
            )
            for each in found.partitions
        ],
    )


@mirrors.command()
@click.argument("name", shell_complete=complete_subscriptions)
@YES
@service_command
def delete(service: Service, name: str, yes: bool) -> None:
    """End the pushes of the mirror NAME. The other stage keeps its topics: promote them there.

    For example: penstock mirrors delete dr
    """
    admin = Admin(transport=service.transport)
    _check_mirror(admin.describe_subscription(name).subscription)
    confirm(f"End the pushes of mirror {name}?", yes=yes)
    admin.delete_subscription(name)
    service.say({"deleted": name}, f"deleted {name}")


@mirrors.command()
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--source", metavar="URL", help="The URL of the source, if the mirror does not tell it.")
@click.option("--source-region", metavar="REGION", help="The region of the source, if its URL does not tell it.")
@click.option("--source-lost", is_flag=True, help="Do not ask the source. Records that it has not pushed are lost.")
@click.option(
    "--leave-delayed",
    is_flag=True,
    help="Do not wait for delayed records that wait at the source: those that stay there never come.",
)
@click.option("--dry-run", is_flag=True, help="Show how far each partition is, and change nothing.")
@click.option(
    "--wait", "wait_ms", type=DURATION, default="5m", show_default=True, help="Wait so long for the last records."
)
@YES
@service_command
def promote(
    service: Service,
    topics: tuple[str, ...],
    source: str | None,
    source_region: str | None,
    source_lost: bool,
    leave_delayed: bool,
    dry_run: bool,
    wait_ms: int,
    yes: bool,
) -> None:
    """Let the mirrored TOPICS of this stage take over. Their source takes no appends any more, and nothing is lost.

    It ends the topics at the source, waits until this stage has all their records, and opens them here. Run it again if
    it ends in the middle. To give up, use `reopen` at the source.

    For example: penstock mirrors promote orders --dry-run
    """
    admin = Admin(transport=service.transport)
    mirrored = {topic: admin.describe_topic(topic).topic for topic in topics}  # so that a typo promotes none of them
    if source_lost:
        found = {topic: admin.promote_topic(topic, is_dry_run=True) for topic in topics}
        here = _delayed(admin, found)
        if dry_run:
            _show_promoted(service, found, None, here)
            return
        confirm(f"Promote {', '.join(topics)}? What the source has not pushed stays behind.", yes=yes)
        committed = {topic: _commit(service, admin, topic, each.groups) for topic, each in found.items()}
        for topic, told in found.items():
            _place_told(service, admin, topic, told.share_groups)
        _show_promoted(service, {topic: admin.promote_topic(topic) for topic in topics}, committed, here)
        return
    moves = [_Move.of(each, source, source_region) for each in mirrored.values() if each.mirror is not None]
    if dry_run:
        _show_moves(service, {each.topic.name: each.end(is_dry_run=True) for each in moves})
        return
    if not leave_delayed:
        _check_delayed(moves)
    confirm(f"Promote {', '.join(topics)}? The source takes no appends from now on.", yes=yes)
    found = {topic: admin.promote_topic(topic) for topic, each in mirrored.items() if each.mirror is None}
    committed = {topic: _commit(service, admin, topic, each.groups) for topic, each in found.items()}
    ends = {each.topic.name: each.end() for each in moves}
    for each in moves:  # before a reader follows to this stage
        _copy_offsets(service, admin, each.source, {each.name: each.topic.name})
    found |= _promoted(service, admin, moves, (ends, leave_delayed), monotonic_ms() + wait_ms)
    for each in moves:
        committed[each.topic.name] = _copy_offsets(service, admin, each.source, {each.name: each.topic.name})
    here = _delayed(admin, found)
    for each in moves:
        left = len(each.source.list_scheduled(each.name)) - (ends[each.topic.name].timers or 0)
        if left > 0 and not service.as_json:
            click.echo(f"{counted(left, 'delayed batch')} of {each.name} never come", err=True)
    _show_promoted(service, found, committed, here)


@mirrors.command("copy-offsets")
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--source", metavar="URL", required=True, help="The URL of the source.")
@click.option("--source-region", metavar="REGION", help="The region of the source, if its URL does not tell it.")
@click.option(
    "--prefix", metavar="TEXT", default="", help="What the names of TOPICS begin with, and not at the source."
)
@service_command
def copy_offsets(
    service: Service, topics: tuple[str, ...], source: str, source_region: str | None, prefix: str
) -> None:
    """Give groups of this stage what they have committed in TOPICS at the source. `promote` does it, too.

    Run it once the readers there are at their ends, so that they read no record twice here. No offset goes back.

    For example: penstock mirrors copy-offsets orders --source https://SOURCE_API
    """
    names = {topic.removeprefix(prefix): topic for topic in topics}
    admin = Admin(transport=service.transport)
    copied = _copy_offsets(service, admin, stage_admin(source, source_region), names)
    service.say({"copied": copied}, f"copied {counted(copied, 'offset')}")


@mirrors.command()
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--mirror-region", metavar="REGION", help="The region of the mirror, if its URL does not tell it.")
@click.option("--mirror-lost", is_flag=True, help="Do not ask the mirror, which may have been promoted.")
@YES
@service_command
def reopen(service: Service, topics: tuple[str, ...], mirror_region: str | None, mirror_lost: bool, yes: bool) -> None:
    """Give up the promotion of the mirrors of TOPICS of this stage: they take appends here again.

    For example: penstock mirrors reopen orders
    """
    admin = Admin(transport=service.transport)
    moves = {topic: admin.describe_topic(topic).topic.move for topic in topics}
    warning = " If a mirror was promoted, both sides take appends, as two logs." if mirror_lost else ""
    confirm(f"Reopen {', '.join(topics)}?{warning}", yes=yes)
    for topic, move in moves.items():
        if move is None:
            raise PenstockError(ErrorCode.INVALID_REQUEST, f"topic {topic!r} was never moved: it takes appends")
        if not mirror_lost and move["state"] in ("moved", "reopening"):  # an earlier call may have had --mirror-lost
            stage_admin(move["url"], mirror_region).refuse_move(move["topic"], move["move"])
        admin.reopen_topic(topic, move["move"], is_mirror_lost=mirror_lost)
    service.say({"reopened": list(topics)}, f"reopened {', '.join(topics)}")


@mirrors.command()
@click.argument("topic", shell_complete=complete_topics)
@YES
@service_command
def resync(service: Service, topic: str, yes: bool) -> None:
    """Begin the mirrored TOPIC of this stage anew. Its records go, and the next push brings them from the start.

    For example: penstock mirrors resync orders
    """
    admin = Admin(transport=service.transport)
    confirm(f"Remove the mirrored topic {topic}, and let its mirror begin anew?", yes=yes)
    admin.resync_topic(topic)
    service.say({"resynced": topic}, f"removed {topic}: the next push makes it anew")


@mirrors.command()
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--here", metavar="URL", required=True, help="The URL of this stage, for the other one.")
@click.option("--here-region", metavar="REGION", default="", help="The region of this stage.")
@click.option("--role", metavar="ARN", default="", help="The role of this stage that the other one may assume.")
@click.option("--name", metavar="NAME", required=True, help="The name of the mirror at the other stage.")
@click.option("--mirror-region", metavar="REGION", help="The region of the other stage, if its URL does not tell it.")
@YES
@service_command
def reverse(
    service: Service,
    topics: tuple[str, ...],
    here: str,
    here_region: str,
    role: str,
    name: str,
    mirror_region: str | None,
    yes: bool,
) -> None:
    """Let TOPICS of this stage, which were moved to another one, mirror it from now on. Their records stay.

    For example: penstock mirrors reverse orders --here https://THIS_API --name back
    """
    admin = Admin(transport=service.transport)
    moves = {topic: admin.describe_topic(topic).topic.move for topic in topics}
    urls = {None if move is None else move["url"] for move in moves.values()}
    if (
        len(urls) != 1
        or None in urls
        or any(move is not None and move["topic"] != each for each, move in moves.items())
    ):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{', '.join(topics)}: give topics that were moved to one stage, under their names",
        )
    [url] = urls
    other = stage_admin(str(url), mirror_region)
    found = {topic: other.describe_topic(topic).topic for topic in topics}
    if waiting := [topic for topic, each in found.items() if each.mirror is not None]:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{', '.join(waiting)}: promote them at {url} first, by `penstock mirrors promote`",
        )
    for topic in topics:
        _check_parted(admin, other, topic)
    confirm(f"Let {', '.join(topics)} mirror {url}?", yes=yes)
    for topic, move in moves.items():
        assert move is not None
        admin.return_topic(topic, move["move"], name, found[topic].topic_id, str(url))
    made = other.create_mirror(name, topics, here, region=here_region, role=role, source=str(url))
    service.say(asdict(made), _text(made))


def _check_parted(admin: Admin, other: Admin, topic: str) -> None:
    """Raises InvalidError if the mirror was promoted elsewhere than where the moved topic ends, as if it was lost."""
    move = admin.describe_topic(topic).topic.move
    if move is None or move["state"] != "moved":
        return  # a repeat: it was checked before, and pushes may have come since
    repeated = other.promote_topic(topic).partitions  # it tells where
    promoted = {each.partition: each.promoted_at for each in repeated}
    for partition, end in admin.list_offsets(topic).items():
        there = promoted.get(partition, 0)  # a partition that the mirror never heard of has its records here alone
        if end != there:
            raise PenstockError(
                ErrorCode.INVALID_REQUEST,
                f"partition {partition} of {topic} ends at {end} here, and was promoted at {there} there: the logs "
                f"have parted. Read what is missing there, delete {topic} here, and mirror it anew",
            )


def _check_mirror(subscription: Subscription) -> None:
    if _STAGE not in subscription.target:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{subscription.name!r} is a subscription, and no mirror: use `penstock subscriptions`",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """The move of a topic of the source, whose mirror is the `topic` of this stage."""

    source: Admin
    name: str
    mirror: str
    topic: Topic

    @classmethod
    def of(cls, topic: Topic, url: str | None, region: str | None) -> "_Move":
        """The move of the topic that this one mirrors. Raises UnknownSubscriptionError at the source."""
        assert topic.mirror is not None
        url = url or topic.mirror["source"]
        if not url:
            raise click.UsageError("the mirror does not tell its source: give --source URL, or --source-lost")
        source = stage_admin(url, region)
        prefix = source.describe_subscription(topic.mirror["name"]).subscription.target[_STAGE].get("prefix", "")
        return cls(source=source, name=topic.name.removeprefix(prefix), mirror=topic.mirror["name"], topic=topic)

    def delayed(self) -> int:
        """The number of delayed records that wait at the source."""
        return sum(each.records for each in self.source.list_scheduled(self.name))

    def end(self, *, is_dry_run: bool = False) -> MovedTopic:
        """End the topic at the source, or tell how far its mirror is."""
        return self.source.move_topic(self.name, self.mirror, is_dry_run=is_dry_run)


def _check_delayed(moves: Sequence[_Move]) -> None:
    """Raises ConflictError if delayed records wait at a source that has told none of them: they would stay there.

    One of both stages may be of a release that does not know of this. A topic that has moved already goes on.
    """
    for each in moves:
        move = each.source.describe_topic(each.name).topic.move
        is_moved = move is not None and move["state"] == "moved"
        if not is_moved and each.end(is_dry_run=True).timers is None and (waiting := each.delayed()):
            raise PenstockError(
                ErrorCode.CONCURRENT_UPDATE,
                f"{waiting} delayed records of topic {each.name!r} wait at the source, and the mirror was not told of "
                "them: try again in five minutes, or give --leave-delayed, and they never come",
            )


def stage_admin(url: str, region: str | None) -> Admin:
    """The operator of another stage, under the same credentials."""
    return Admin(transport=open_transport(url, region))


def _promoted(
    service: Service, admin: Admin, moves: Sequence[_Move], moved: tuple[dict[str, MovedTopic], bool], until_ms: float
) -> dict[str, PromotedTopic]:
    """The promoted partitions of each topic. All topics have ended at the source, so that no app goes on with half.

    `moved` has the end of each topic, and whether delayed records may be left.
    """
    ends, leaves_delayed = moved
    found: dict[str, PromotedTopic] = {}
    told = -1
    for polls in itertools.count():
        left = [each for each in moves if each.topic.name not in found]
        for each in left:
            is_behind = polls == 0 or not ends[each.topic.name].is_mirrored  # a start begins to tell timers anew
            if polls % _POLLS_OF_A_START == 0 and is_behind:  # it asks how far the mirror is, if nothing is to push
                each.source.resume_subscription(each.mirror)
            end = ends[each.topic.name] = each.end()
            if not (end.is_mirrored and (end.are_timers_told or leaves_delayed)):
                continue
            _copy_places(service, admin, each.source, (each.name, each.topic.name))  # before a reader follows
            promoted = admin.promote_moved(end, each.topic.topic_id)
            if promoted is not None:
                found[each.topic.name] = promoted
        if len(found) == len(moves):
            return found
        missing = sum(part.lag for name, end in ends.items() if name not in found for part in end.partitions)
        if monotonic_ms() >= until_ms:
            untold = [] if leaves_delayed else [name for name, end in ends.items() if not end.are_timers_told]
            delayed = f", and tells delayed records of {', '.join(untold)} (or give --leave-delayed)" if untold else ""
            raise PenstockError(
                ErrorCode.THROTTLED,
                f"the source still has {missing} records to push{delayed}: run this again, or `penstock mirrors "
                "reopen` there",
            )
        if missing != told and not service.as_json:
            click.echo(f"{missing} records behind", err=True)
            told = missing
        time.sleep(_POLL_S)
    raise AssertionError("the loop does not end by itself")


def _copy_offsets(service: Service, admin: Admin, source: Admin, names: Mapping[str, str]) -> int:
    """Give the groups of this stage what those of the source have committed in its topics. Returns how many offsets.

    `names` has the topic here of each topic there. None is beyond the end here: if the source is lost before it has
    pushed the rest, other records come there. One request for each group and topic at the source.
    """
    copied = 0
    ends = {here: admin.list_offsets(here) for here in names.values()}
    for group in source.list_groups():
        for name, here in names.items():
            places = [
                GroupPlace(
                    group=group.group,
                    partition=each.partition,
                    offset=min(each.offset, ends[here].get(each.partition) or 0),
                    metadata=each.metadata,
                )
                for each in source.group_offsets(group.group, name)
            ]
            copied += _commit(service, admin, here, places)
    return copied


def _copy_places(service: Service, admin: Admin, source: Admin, names: tuple[str, str]) -> None:
    """Let share groups here begin at the first record that those of their names at the source have not finished.

    `names` are the topic's there and here. No place goes back, and none is beyond the end here. Records that a worker
    at the source finishes from now on come again. Three requests for each group, and one for each of its partitions.
    """
    name, here = names
    ends = admin.list_offsets(here)
    for group in [each.group for each in source.list_share_groups() if name in each.topics]:
        try:
            places = {each.partition: each.start_offset for each in _places(source, group, name)}
        except PenstockError as error:
            _tell_not_placed(service, group, error)
            continue
        _place(service, admin, (group, here), {each: min(at, ends.get(each) or 0) for each, at in places.items()})


def _place_told(service: Service, admin: Admin, topic: str, places: Iterable[GroupPlace]) -> None:
    """Let share groups here begin at what the source told of those of their names. Groups that are not here stay so."""
    names = {each.group for each in admin.list_share_groups() if topic in each.topics}
    by_group = itertools.groupby(sorted(places, key=_by_text), lambda each: each.group)
    for group, of_group in by_group:
        if group in names:
            _place(service, admin, (group, topic), {each.partition: each.offset for each in of_group})


def _place(service: Service, admin: Admin, names: tuple[str, str], places: Mapping[int, int]) -> None:
    """Move a share group forward to these places of a topic, where it is behind them."""
    group, topic = names
    try:
        old = {each.partition: each.start_offset for each in _places(admin, group, topic)}
        for partition, offset in places.items():
            if offset > old.get(partition, offset):
                admin.reset_share_group(group, topic, offset=offset, partitions=[partition])
    except PenstockError as error:
        _tell_not_placed(service, group, error)


def _tell_not_placed(service: Service, group: str, error: PenstockError) -> None:
    if not service.as_json:
        click.echo(f"share group {group} does not go on here where it was: {error}", err=True)


def _places(admin: Admin, group: str, topic: str) -> list[ShareGroupPartition]:
    return [each for each in admin.describe_share_group(group).partitions if each.topic == topic]


def _commit(service: Service, admin: Admin, topic: str, places: Iterable[GroupPlace]) -> int:
    """The number of offsets that groups here have got. None goes back, and none of a group with members changes.

    One request for each group and text of metadata; if one is refused, one for each of its offsets.
    """
    committed = 0
    for (group, metadata), of_group in itertools.groupby(sorted(places, key=_by_text), _by_text):
        offsets = {TopicPartition(topic, each.partition): each.offset for each in of_group}
        try:
            admin.commit_group_offsets(group, offsets, metadata=metadata)
            committed += len(offsets)
        except PenstockError:
            alone = ({partition: offset} for partition, offset in offsets.items())
            committed += sum(_commit_one(service, admin, group, each, metadata) for each in alone)
    return committed


def _by_text(place: GroupPlace) -> tuple[str, str]:
    return place.group, place.metadata


def _commit_one(
    service: Service, admin: Admin, group: str, offset: Mapping[TopicPartition, int], metadata: str
) -> bool:
    try:
        admin.commit_group_offsets(group, offset, metadata=metadata)
    except PenstockError as error:
        [place] = offset
        if error.code is not ErrorCode.OFFSET_BEHIND and not service.as_json:
            click.echo(f"group {group}, {place.topic} {place.partition}: {error.message}", err=True)
        return False
    return True


def _show_moves(service: Service, moves: Mapping[str, MovedTopic]) -> None:
    service.show(
        {topic: asdict(each) for topic, each in moves.items()},
        title="dry run: nothing was changed",
        columns=("topic", "partition", "source ends at", "mirror has", "lag", "newest record"),
        rows=[
            (topic, part.partition, part.end_offset, part.mirrored_offset, part.lag, _time(part.appended_ms))
            for topic, each in moves.items()
            for part in each.partitions
        ],
    )


def _delayed(admin: Admin, topics: Iterable[str]) -> dict[str, int]:
    """The number of delayed records of each topic that wait here."""
    return {topic: sum(each.records for each in admin.list_scheduled(topic)) for topic in topics}


def _show_promoted(
    service: Service,
    found: Mapping[str, PromotedTopic],
    committed: Mapping[str, int] | None,
    delayed: Mapping[str, int],
) -> None:
    """`committed` has the offsets that groups here have got of each topic, None in a dry run.

    `delayed` records wait here.
    """
    service.show(
        {
            topic: {
                "partitions": [asdict(each) for each in promoted.partitions],
                "offsets_committed": 0 if committed is None else committed[topic],
                "offsets_told": len(promoted.groups),
                "groups_read_ms": promoted.groups_read_ms,
                "groups_left_out": promoted.groups_left_out,
                "delayed": delayed[topic],
            }
            for topic, promoted in found.items()
        },
        title="dry run: nothing was changed" if committed is None else "promoted",
        columns=("topic", "partition", "ended at", "newest record"),
        rows=[
            (topic, each.partition, each.promoted_at, _time(each.appended_ms))
            for topic, promoted in found.items()
            for each in promoted.partitions
        ],
    )
    if not service.as_json:
        for topic, promoted in found.items():
            click.echo(f"{topic}: {_offsets_text(promoted, None if committed is None else committed[topic])}")
            click.echo(f"{topic}: {counted(delayed[topic], 'delayed record')} of the source came along, and wait")


def _offsets_text(promoted: PromotedTopic, committed: int | None) -> str:
    left_out = f", and left {promoted.groups_left_out} groups out" if promoted.groups_left_out else ""
    told = "the source has told no offsets of groups"
    if promoted.groups_read_ms is not None:
        told = f"the source told {len(promoted.groups)} offsets of groups at {_time(promoted.groups_read_ms)}{left_out}"
    return told if committed is None else f"{committed} offsets of groups committed; {told}"


def _row(mirror: Subscription, topic: MirroredTopic) -> Sequence[Any]:
    state = mirror.state if mirror.state != "active" else topic.state
    return topic.topic, state, topic.epoch, topic.lag, _span(topic.oldest_age_ms), _time(topic.succeeded_ms)


def _span(span_ms: int | None) -> str | None:
    return None if span_ms is None else f"{span_ms / 1_000:,.1f} s"


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else time_text(time_ms)


def _text(subscription: Subscription) -> str:
    stage = subscription.target[_STAGE]
    prefix = stage.get("prefix", "")
    return f"{subscription.name} ({subscription.state}) mirrors {', '.join(subscription.topics)} to {stage['url']}" + (
        f", with prefix {prefix!r}" if prefix else ""
    )
