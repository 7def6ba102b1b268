"""The parts that every Lambda function shares: entry points, parsing, answers."""
