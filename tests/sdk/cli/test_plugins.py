import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import penstock.cli
from penstock.cli import PLUGIN_SUMMARIES, SUMMARIES, main
from tests.support.child_process import bare_environment


class _Found:
    name = "extra"

    def load(self) -> object:
        return click.Command("extra", help="From elsewhere.", callback=lambda: click.echo("ran"))


def test_command_of_another_package_is_listed_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(penstock.cli, "entry_points", lambda group, name="extra": [_Found()] if name == "extra" else [])
    assert "extra" in CliRunner().invoke(main, ["--help"]).output
    assert CliRunner().invoke(main, ["extra"]).output == "ran\n"
    assert "No such command 'none'" in CliRunner().invoke(main, ["none"]).output


@pytest.mark.parametrize("name", [*SUMMARIES, *PLUGIN_SUMMARIES])
def test_summary_is_the_first_sentence_of_the_commands_help(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert {**SUMMARIES, **PLUGIN_SUMMARIES}[name] == command.get_short_help_str(limit=200)


def test_help_lists_every_command() -> None:
    listed = CliRunner().invoke(main, ["--help"]).output.partition("Commands:")[2]
    names = [line.split()[0] for line in listed.splitlines() if line[2:3].strip()]
    assert names == main.list_commands(click.Context(main))


@pytest.mark.parametrize("group", [[], ["topics"], ["share-groups"]])
def test_lists_of_commands_show_whole_sentences(group: list[str]) -> None:
    listed = CliRunner().invoke(main, [*group, "--help"]).output.partition("Commands:")[2]
    assert "..." not in listed
    assert max(map(len, listed.splitlines())) <= 80


def _contexts(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    if not isinstance(command, click.Group):
        yield context
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _contexts(below, click.Context(below, info_name=name, parent=context))


@pytest.mark.parametrize(
    "context", [*_contexts(main, click.Context(main, info_name="penstock"))], ids=lambda each: each.command_path
)
def test_help_of_a_command_has_an_example_that_it_takes(
    context: click.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.json").touch()
    (tmp_path / "shop.yaml").touch()
    text = " ".join((context.command.help or "").split())
    assert context.parent is not None
    examples = re.findall(rf"{context.command_path}( .*?)?(?= penstock |$)", text.partition("For example:")[2])
    assert examples, text
    for each in examples:
        words = shlex.split(each.partition(" >")[0])
        assert context.info_name is not None
        context.command.make_context(context.info_name, words, parent=context.parent)


@pytest.mark.slow
def test_gateway_without_its_extra_names_the_extra() -> None:
    program = "import sys; sys.modules['kio'] = None; from penstock_kafka.command import kafka; kafka()"
    environment = {**bare_environment(), "PENSTOCK_URL": "http://127.0.0.1:1", "AWS_REGION": "us-east-1"}
    environment |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, env=environment)
    assert "`penstock kafka` needs `pip install 'penstock[kafka]'`" in done.stderr.decode()


def test_program_may_add_a_command_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(main.commands, "mine", click.Command("mine", help="A command of mine."))
    context = click.Context(main)
    assert "mine" in main.list_commands(context)
    assert main.get_command(context, "mine") is main.commands["mine"]
    assert "A command of mine." in CliRunner().invoke(main, ["--help"]).output
