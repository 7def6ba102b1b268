"""Background work of clients: threads and asyncio tasks."""
