"""Runs of the Spark jobs: on this machine, on EMR Serverless and on Glue, by one interface."""
