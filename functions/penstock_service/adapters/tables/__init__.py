"""DynamoDB's tables in memory, with the interface of boto3's low-level client."""
