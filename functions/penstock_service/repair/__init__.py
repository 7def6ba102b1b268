"""The use cases that restore copies: of zones that were out, of single segments, and of all that the scrub reads."""
