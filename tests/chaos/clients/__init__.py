"""The processes of a chaos run that call the service: producers, readers, group members and the compactor."""
