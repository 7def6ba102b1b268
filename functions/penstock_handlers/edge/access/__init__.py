"""The caller of a request: who it is, which rights its route needs, and which changes the audit trail notes."""
