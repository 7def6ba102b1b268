"""Topics in Spark: what the jobs of ``glue_jobs`` share, and what a notebook imports."""
