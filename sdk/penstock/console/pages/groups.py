"""Groups: their members and lag, their settings, and a reset that shows first what it does."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.console.page import Asked, Moved, Page, Route, Shown, path_of
from penstock.console.paging import listed, paged
from penstock.console.parsing import changed_settings, settings_of, typed_ms
from penstock.errors import InvalidError
from penstock_core.errors import ErrorCode, shown
from penstock_core.groups.group import GroupConfig

_DEFAULTS: Mapping[str, Any] = asdict(GroupConfig())
_TARGETS = ("earliest", "latest", "time", "shift")


def show_list(asked: Asked) -> Shown:
    """All groups whose names hold the text of the search: one request per hundred groups."""
    wanted = asked.word("q")
    look = listed(asked, asked.memory.lists.groups, asked.admin.list_groups)
    found = [each for each in look.value or () if wanted.lower() in each.group.lower()]
    rows = paged(found, asked)
    changed = {each.group: changed_settings(each.config, _DEFAULTS) for each in rows.rows}
    facts = {"groups": rows, "changed": changed, "look": look, "q": wanted}
    return Shown(template="groups.html", title="Groups", facts=facts)


def show(asked: Asked) -> Shown:
    """One group with its members and partitions: one request per thousand of them."""
    found = asked.admin.describe_group(asked.path["group"])
    topics = sorted({each.topic for each in found.partitions})
    return Shown(
        template="group.html",
        title=found.group.group,
        facts={
            "group": found.group,
            "members": paged(found.members, asked, name="members"),
            "partitions": paged(found.partitions, asked),
            "names": {each.member_id: each.client_id or each.instance_id or each.member_id for each in found.members},
            "lag": sum(each.lag or 0 for each in found.partitions),
            "oldest_age_ms": max((each.oldest_age_ms or 0 for each in found.partitions), default=0),
            "topics": topics,
            "config": {name: found.group.config.get(name, default) for name, default in _DEFAULTS.items()},
            "defaults": _DEFAULTS,
        },
    )


def alter(asked: Asked) -> Moved:
    """Change the settings that differ."""
    name = asked.path["group"]
    changes = settings_of(asked.form, asked.admin.describe_group(name).group.config, _DEFAULTS)
    if changes:
        asked.admin.alter_group(name, changes)
    return Moved(to=_path(name), said=f"Changed {', '.join(changes)}." if changes else "Nothing to change.")


def preview_reset(asked: Asked) -> Shown:
    """The offsets that a reset would set. Nothing changes."""
    name = asked.path["group"]
    done = asked.admin.reset_group_offsets(name, _topic(asked), **_target(asked), dry_run=True)
    fields = ("topic", "to", "time", "shift")
    return Shown(
        template="reset.html",
        title=f"Reset {name}?",
        facts={
            "group": name,
            "parent": ("Groups", "/groups"),
            "base": _path(name),
            "warning": None,
            "may_force": True,
            "resets": paged(sorted(done.items()), asked),
            "fields": {field: asked.word(field) for field in fields if asked.word(field)},
            "topic": _topic(asked),
        },
    )


def reset(asked: Asked) -> Moved:
    """Set the offsets."""
    name = asked.path["group"]
    asked.check_name(name)
    is_forced = bool(asked.form.get("force"))
    done = asked.admin.reset_group_offsets(name, _topic(asked), **_target(asked), force=is_forced)
    return Moved(to=_path(name), said=f"Set {len(done)} offsets of {_topic(asked)}.")


def delete(asked: Asked) -> Moved:
    """Delete the group and its offsets."""
    name = asked.path["group"]
    asked.check_name(name)
    asked.admin.delete_group(name)
    return Moved(to="/groups", said=f"Deleted {name}.")


def _path(name: str) -> str:
    return path_of("groups", name)


def _topic(asked: Asked) -> str:
    topic = asked.word("topic")
    if not topic:
        raise InvalidError(ErrorCode.INVALID_REQUEST, "choose the topic whose offsets are to be set")
    return topic


def _target(asked: Asked) -> dict[str, Any]:
    """The target of a reset, as `Admin.reset_group_offsets` takes it."""
    to = asked.word("to")
    if to not in _TARGETS:
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"to={shown(to)}: choose one of {', '.join(_TARGETS)}")
    if to == "time":
        return {"timestamp_ms": typed_ms(asked.word("time"), asked.now_ms)}
    if to == "shift":
        return {"shift_by": _signed(asked.word("shift"))}
    return {"to": to}


def _signed(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"shift={shown(text)}: give a whole number, such as -100")
    return int(text)


PAGE = Page(
    menu="Groups",
    path="/groups",
    routes=(
        Route(method="GET", path="/groups", answer=show_list),
        Route(method="GET", path="/groups/{group}", answer=show),
        Route(method="POST", path="/groups/{group}/settings", answer=alter),
        Route(method="GET", path="/groups/{group}/reset", answer=preview_reset),
        Route(method="POST", path="/groups/{group}/reset", answer=reset),
        Route(method="POST", path="/groups/{group}/delete", answer=delete),
    ),
)
