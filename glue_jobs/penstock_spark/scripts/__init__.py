"""The jobs, one script each. EMR Serverless and Glue run a script as a file of its own, next to Penstock's packages."""
