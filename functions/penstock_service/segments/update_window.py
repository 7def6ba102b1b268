"""The window of an update, by the name under which writers of segments know it."""

from penstock_service.instance.update_window import UpdateWindow

__all__ = ["UpdateWindow"]
