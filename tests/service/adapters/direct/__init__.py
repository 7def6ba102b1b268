"""The direct clients of S3 and DynamoDB."""
