"""Lists the questions that the benches answer, each with its command."""

import click

from bench.questions import QUESTIONS


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command("list")
def list_questions() -> None:
    """Show each command with its question. The pages of docs/performance/ have the answers."""
    lines = [(f"python -m {each.command}{' [--quick]' if each.quick else ''}", each) for each in QUESTIONS]
    width = max(len(command) for command, _ in lines)
    for command, question in lines:
        needs = f" (needs {question.needs})" if question.needs else ""
        click.echo(f"{command:{width}}  {question.asks}{needs}")


if __name__ == "__main__":
    main()
