"""From a run of a bench to the documentation: results, their JSON, tables, and the pages that show them."""
