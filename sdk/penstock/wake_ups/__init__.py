"""Wake-ups: the WebSocket that tells a waiting consumer of records, and what it watches (docs/protocol/wake-ups)."""
