"""The audit trail: who changed what, with the state before and after (docs/adr/0047)."""
