"""Pages of lists of which a caller sees a part."""

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.pages import shown_page


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.integers(1, 5), st.integers(1, 5))
def test_pages_join_to_what_is_shown_and_name_nothing_else(
    all_numbers: set[int], shown: set[int], limit: int, read_size: int
) -> None:
    names = sorted(f"{number:02}" for number in all_numbers)
    visible = [name for name in names if int(name) in shown]

    def read(after: str) -> tuple[list[str], str | None]:
        found = [name for name in names if name > after][:read_size]
        return found, found[-1] if len(found) == read_size else None

    joined: list[str] = []
    after: str | None = ""
    while after is not None:
        page, after = shown_page(read, after, limit, visible.__contains__, str)
        assert len(page) <= limit
        assert after is None or after == page[-1]
        joined += page
    assert joined == visible
