"""Write the audit trail: a note before each change, and a record in the topic `_audit` after it."""
