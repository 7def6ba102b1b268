"""The use cases of delayed records that wait: promote, list, cancel."""
