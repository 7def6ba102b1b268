from collections.abc import Callable

from penstock.testing import MemoryPenstock
from penstock_import.copying.group_mover import GroupMover, GroupSettings
from penstock_import.copying.topic_import import TopicImport
from tests.importer.copies import Told, copier_of, held, sent
from tests.importer.memory_source import MemorySource


class _Switch(Told):
    """The source gets another record behind its end when the first is copied. At the new end the copy is stopped."""

    def __init__(self, source: MemorySource) -> None:
        super().__init__()
        self.source = source
        self.stop: Callable[[], None] = lambda: None

    def copied(self, records: int, skipped: int, lag: int) -> None:
        if records == len(self.source.records[0]) == 1:
            self.source.add(0, None, b"second")

    def drained(self) -> None:
        super().drained()
        self.stop()


def test_import_follows_until_it_is_stopped_and_tells_that_the_source_is_drained() -> None:
    service = MemoryPenstock()
    service.create_topic("orders")
    source = MemorySource()
    source.add(0, None, b"first")
    source.groups = {"billing": {0: 2}}
    report = _Switch(source)
    copier = copier_of(source, service, report=report)
    report.stop = copier.rounds.stop
    settings = GroupSettings(groups=["billing"], topic="orders", mode="keep")
    mover = GroupMover(service.admin(), source, copier.progress, settings)
    outcome = TopicImport(copier, source, mover, report, follows=True).run()
    copier.close()
    assert held(service) == sent(source)
    assert (report.ends, outcome.is_complete, outcome.is_drained) == (1, True, True)
    assert dict(outcome.groups[0].offsets) == {0: 2}
    assert report.moves == list(outcome.groups)
