"""Metadata: clients ask for brokers, topics and coordinators before anything else."""
