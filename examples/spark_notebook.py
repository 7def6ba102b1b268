"""A topic as a table in Spark, as a notebook script: Jupyter, VS Code and PyCharm run it cell by cell.

    .venv/bin/python examples/spark_notebook.py orders

It takes Java 17 and `penstock[spark]`. It finds the local stack by the folder that it runs in. The records' values are
JSON with `customer` and `cents`.
"""

# %% [markdown]
# # Orders by customer
# In a local session, Spark's workers run the Python that runs this notebook: `register` sees to it.

# %%
import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import penstock_spark

topic = sys.argv[1]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
penstock_spark.register(spark)

# %% [markdown]
# Spark reads the topic where it lies, in S3: no request goes through the API. The table is a snapshot of the topic at
# this moment. The schema makes columns of the values. It may lie in a file, in S3 or in a registry, too.

# %%
SCHEMA = {
    "required": ["customer", "cents"],
    "properties": {"customer": {"type": "string"}, "cents": {"type": "integer"}},
}
orders = penstock_spark.read(spark, subscribe=topic, schema=f"json:{json.dumps(SCHEMA)}")
print(", ".join(orders.columns))

# %% [markdown]
# A value that does not fit the schema is in `_raw`, and `_raw_reason` says why.

# %%
fits = orders.where("_raw_reason IS NULL")
print(orders.count() - fits.count(), "values do not fit")

# %% [markdown]
# Who spends most?

# %%
totals = fits.groupBy("customer").agg(sql.count("*").alias("orders"), sql.sum("cents").alias("cents"))
totals.orderBy(sql.desc("cents"), "customer").show()

# %%
spark.stop()
