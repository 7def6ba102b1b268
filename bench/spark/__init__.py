"""What Spark's jobs, reads and streams take."""
