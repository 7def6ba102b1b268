"""A topic as a table in Spark, as a notebook script: Jupyter, VS Code and PyCharm run it cell by cell.

    .venv/bin/python examples/spark_notebook.py orders

It takes Java 17 and `penstock[spark]`. It finds the local stack by the folder that it runs in. The records' values are
JSON with `customer` and `cents`.
"""

# %% [markdown]
# # Orders by customer
# In a local session, Spark's workers run the Python that runs this notebook: `register` sees to it.

# %%
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import penstock_spark

topic = sys.argv[1]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
penstock_spark.register(spark)

# %% [markdown]
# Spark reads the topic where it lies, in S3: no request goes through the API. The table is a snapshot of the topic at
# this moment.

# %%
records = spark.read.format("penstock").option("subscribe", topic).load()
order = sql.from_json(sql.col("value").cast("string"), "customer string, cents long")
orders = records.select("partition", "offset", "timestamp", order.alias("order")).select("*", "order.*").drop("order")

# %% [markdown]
# Who spends most?

# %%
totals = orders.groupBy("customer").agg(sql.count("*").alias("orders"), sql.sum("cents").alias("cents"))
totals.orderBy(sql.desc("cents"), "customer").show()

# %%
spark.stop()
