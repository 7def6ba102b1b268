"""What a release tells of itself in its template, so that the next one can be compared before it is deployed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock_core.formats import BYTE_FORMATS, ITEM_FORMATS, ON_DEMAND
from penstock_core.log.inline import NO_ITEMS, InlineBounds
from penstock_core.routes import ROUTES
from penstock_core.version import VERSION

METADATA_KEY = "PenstockRelease/"  # and the ids of the construct behind it, as in the names of its outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFacts:
    """A release: the versions of each kind that it writes and reads, and the function of each route."""

    release: str
    writes: Mapping[str, tuple[int, ...]]
    reads: Mapping[str, tuple[int, ...]]
    routes: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The facts as the template has them: the routes by function."""
        functions: dict[str, list[str]] = {}
        for route, function in self.routes.items():
            functions.setdefault(function, []).append(route)
        formats = {kind: [list(self.writes[kind]), list(self.reads[kind])] for kind in self.writes}
        return {"release": self.release, "formats": formats, "functions": functions}


def own_facts(small: InlineBounds = NO_ITEMS) -> ReleaseFacts:
    """The facts of this code in a stage with these bounds of small appends."""
    formats = {**ITEM_FORMATS, **BYTE_FORMATS}
    of_items = {4: small.swept_bytes, 6: small.expiring_bytes}
    added = frozenset(version for version, bytes_max in of_items.items() if bytes_max)
    formats["ref"] = replace(formats["ref"], writes=formats["ref"].writes | added)
    return ReleaseFacts(
        release=VERSION,
        writes={kind: tuple(sorted(each.writes)) for kind, each in formats.items()},
        reads={kind: tuple(sorted(each.reads)) for kind, each in formats.items()},
        routes={route.key: route.function for route in ROUTES},
    )


def parse_facts(told: Mapping[str, Any]) -> ReleaseFacts:
    """The facts of `to_json`. Raises KeyError, TypeError or ValueError for other JSON."""
    formats: Mapping[str, Any] = told["formats"]
    return ReleaseFacts(
        release=told["release"],
        writes={kind: tuple(writes) for kind, (writes, _) in formats.items()},
        reads={kind: tuple(reads) for kind, (_, reads) in formats.items()},
        routes={route: function for function, routes in told["functions"].items() for route in routes},
    )


def conflicts(old: ReleaseFacts, new: ReleaseFacts) -> Iterator[str]:
    """What one of two releases writes, and the other does not read. Both serve a stage while it is upgraded.

    A kind that a release does not know is nothing to it: the other one keeps it in items of its own. What the new one
    writes on demand is no conflict: nobody asks for it yet. What the old one may have written so is.
    """
    for writer, reader in ((old, new), (new, old)):
        for kind, written in writer.writes.items():
            later = ON_DEMAND.get(kind, frozenset()) if writer is new else frozenset()
            if kind in reader.reads and (unread := sorted(set(written) - later - set(reader.reads[kind]))):
                versions = ", ".join(map(str, unread))
                yield f"{writer.release} writes {kind} of format {versions}, which {reader.release} does not read"


def format_changes(old: ReleaseFacts, new: ReleaseFacts) -> Iterator[str]:
    """The kinds that change from one release to the other."""
    for kind in sorted({*old.writes, *new.writes}):
        if kind not in old.writes or kind not in new.writes:
            yield f"{kind}: {'new' if kind in new.writes else 'gone'}"
        elif (old.writes[kind], old.reads[kind]) != (new.writes[kind], new.reads[kind]):
            yield f"{kind}: writes {_versions(old.writes[kind])} -> {_versions(new.writes[kind])}"


def moved_routes(old: ReleaseFacts, new: ReleaseFacts) -> Iterator[str]:
    """The routes that another function serves, or none, by the function that served them."""
    moves: dict[tuple[str, str], int] = {}
    for route, function in old.routes.items():
        served = new.routes.get(route, "no function")
        if served != function:
            moves[function, served] = moves.get((function, served), 0) + 1
    for (function, served), count in sorted(moves.items()):
        yield f"{count} routes of {function} go to {served}"


def _versions(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
