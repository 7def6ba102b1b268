from penstock_core.storage.compaction_item import cursor_item, cursor_key, parse_cursor


def test_cursor_item_is_what_is_stored_today() -> None:
    assert cursor_item("sweep", "17") == {
        "pk": {"S": "#cursors"},
        "sk": {"S": "sweep"},
        "cursor": {"S": "17"},
    }
    assert cursor_key("sweep") == {"pk": {"S": "#cursors"}, "sk": {"S": "sweep"}}
    assert parse_cursor(cursor_item("sweep", "17")) == "17"
