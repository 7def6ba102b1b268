"""The Spark jobs on EMR Serverless and Glue."""
