"""The Spark session of all benches: local, on two cores, with the Python that runs the bench."""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession


def local_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session, with these settings of Spark added."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("penstock-bench").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark: SparkSession = builder.config(map=dict(settings or {})).getOrCreate()
    return spark
