"""Topics, share groups and subscriptions that a template declares, and the rights on them."""
