import click
import pytest
from click.testing import CliRunner, Result

from penstock.cli.options.confirmation import YES, confirm


def _delete(*arguments: str, answer: str = "") -> Result:
    @click.command()
    @YES
    def delete(yes: bool) -> None:
        confirm("Delete it?", yes=yes)
        click.echo("deleted")

    return CliRunner().invoke(delete, arguments, input=answer)


def test_question_is_asked_beside_the_output() -> None:
    result = _delete(answer="y\n")
    assert (result.exit_code, result.stdout) == (0, "deleted\n")
    assert result.stderr.startswith("Delete it? [y/N]: ")


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_command_ends_unless_the_answer_is_yes(answer: str) -> None:
    result = _delete(answer=answer)
    assert (result.exit_code, result.stdout) == (1, "")


def test_option_answers_the_question() -> None:
    result = _delete("--yes")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "deleted\n", "")
