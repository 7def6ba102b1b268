from penstock_core.storage.table_declarations import TABLES, TTL_ATTRIBUTE


def test_log_table_has_a_stream_and_items_that_end_lie_in_tables_that_remove_them() -> None:
    assert [name for name, table in TABLES.items() if table.is_streamed] == ["log"]
    assert {name for name, table in TABLES.items() if table.ttl_attribute == TTL_ATTRIBUTE} == {"log", "groups"}
