"""Requests of the SDK as operations of a history: what each asks for, and what its answer says of that."""
