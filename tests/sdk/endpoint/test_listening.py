import pytest

from penstock.endpoint.listening import fitting_connections
from penstock_core.limits import RESERVED_FILES

resource = pytest.importorskip("resource")


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "fitting", "raised"),
    [
        (1_024, 4_096, 2_000, 2_000, 2_000 + RESERVED_FILES),
        (1_024, 1_024, 2_000, 1_024 - RESERVED_FILES, None),
        (1_024, 1_500, 2_000, 1_500 - RESERVED_FILES, 1_500),
        (1_024, -1, 2_000, 2_000, 2_000 + RESERVED_FILES),
        (-1, -1, 2_000, 2_000, None),
        (4_096, 4_096, 2_000, 2_000, None),
        (10, 10, 2_000, 1, None),
    ],
)
def test_limit_of_open_files_is_raised_or_fewer_connections_fit(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, wanted: int, fitting: int, raised: int | None
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, found: limits.append(found))
    monkeypatch.setattr(resource, "RLIM_INFINITY", -1)
    assert fitting_connections(wanted) == fitting
    assert limits[1:] == ([] if raised is None else [(raised, hard)])
