"""What a release stores, recorded: the next release must read it, and must not change it unnoticed (docs/adr/0036)."""
