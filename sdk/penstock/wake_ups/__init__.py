"""Wake-ups: the WebSocket that tells a waiting consumer of new records, and what it watches (docs/adr/0026)."""
