"""Checks what a fence that needs an AWS account says, without running it: its syntax, and the options of `penstock`."""

import shlex
import subprocess
from collections.abc import Iterator, Sequence

import click

from localstack.places import CHECKOUT
from penstock.cli import main
from penstock.jobs.local import LocalPlace

_HELP = ("--help", "-h")


def bash_complaint(script: str) -> str:
    """The complaint of `bash -n`, empty if the script is well formed."""
    return subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False).stderr


def penstock_commands(script: str) -> Iterator[list[str]]:
    """The words of each `penstock` command of the script, after its name."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if not set(word) <= set("|&;"):
                words.append(word)
                continue
            start = next((number for number, each in enumerate(words) if each.split("/")[-1] == "penstock"), None)
            if start is not None:
                yield words[start + 1 :]
            words = []


def command_complaint(words: Sequence[str]) -> str:
    """Names the command or option that `penstock` does not have, empty if it has all."""
    command: click.Command = main
    left = list(words)
    while isinstance(command, click.Group) and left and not left[0].startswith("-"):
        name = left.pop(0)
        found = command.get_command(click.Context(command), name)
        if found is None:
            return f"penstock has no command {name!r} in {' '.join(words)!r}"
        command = found
    known = {option for parameter in command.params for option in parameter.opts} | set(_HELP)
    if command.name == "run" and left:
        known |= set(LocalPlace(CHECKOUT).usage(left[0]).replace(",", " ").replace("=", " ").split())
    unknown = [word for word in left if word.startswith("--") and word.split("=")[0] not in known and word != "--"]
    return f"penstock {' '.join(words)}: there is no option {unknown[0]}" if unknown else ""
