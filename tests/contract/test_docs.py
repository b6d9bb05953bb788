"""The documents hold what they promise: their code runs and prints what they say it prints.

Of the fenced blocks of README.md and docs/*.md, in order, those of one file together:

- `python`: run in one namespace per file, as a doctest where it has `>>>`. A `text` block right
  after it is what it prints.
- `console`: lines after `$` are commands, the others their output. `inout` is run, `cat` shows a
  file, targets of `make` must exist.
- `dyna`: must be a program.

`...` stands for any text, as in doctests. Commands run in an empty folder that has examples/.
"""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from inout.cli import main
from inout.cli.progress import COMPILING
from inout.deduction.reading import parse_program

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# They train models, or solve many small problems.
SLOW = {"contexts.md", "distributions.md", "latent.md"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line it starts in, and the gap before it."""

    language: str
    text: str
    line: int
    follows: bool  # nothing but empty lines between the block before and this one


def blocks(document: str) -> Iterator[Block]:
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    end = 0
    for match in fence.finditer(document):
        gap = document[end : match.start()]
        line = document.count("\n", 0, match.start()) + 2
        yield Block(match[1], match[2], line, end > 0 and not gap.strip())
        end = match.end()


def check_output(expected: str, actual: str, where: str) -> None:
    actual = re.sub(r"[ \t]+$", "", actual, flags=re.MULTILINE)
    expected = re.sub(r"[ \t]+$", "", expected, flags=re.MULTILINE)
    agrees = doctest.OutputChecker().check_output(expected, actual, doctest.ELLIPSIS)
    assert agrees, f"{where}: must print\n{expected}\nGot\n{actual}"


def run_python(block: Block, namespace: dict[str, Any], path: Path) -> str:
    if ">>>" in block.text:
        test = doctest.DocTestParser().get_doctest(
            block.text, namespace, path.name, str(path), block.line - 1
        )
        report = StringIO()
        runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
        runner.run(test, out=report.write, clear_globs=False)
        namespace.update(test.globs)
        assert runner.failures == 0, report.getvalue()
        return ""
    printed = StringIO()
    # Blank lines first, so that an error names the line of the document.
    code = compile("\n" * (block.line - 1) + block.text, str(path), "exec")
    with redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def run_command(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    program, *arguments = shlex.split(command, comments=True)
    if program == "cat":
        return "".join(Path(argument).read_text(encoding="utf-8") for argument in arguments)
    if program == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE), f"make has no {arguments}"
        return ""
    assert program == "inout", f"cannot run {program}"
    if ">" in arguments:
        arguments = arguments[: arguments.index(">")]
    code = main(arguments)
    captured = capsys.readouterr()
    assert code == 0 or captured.err, f"{command}: exit code {code}"
    # Said or not, depending on what was run before.
    return captured.out + re.sub(rf"^inout: {COMPILING}.*\n", "", captured.err, flags=re.MULTILINE)


def run_console(block: Block, capsys: pytest.CaptureFixture[str], where: str) -> None:
    parts = re.split(r"^\$ ", block.text.replace("\\\n", " "), flags=re.MULTILINE)
    assert not parts[0].strip(), f"{where}: the first line must be a command"
    for part in parts[1:]:
        command, _, expected = part.partition("\n")
        actual = run_command(command, capsys)
        if expected.strip():
            check_output(expected.rstrip() + "\n", actual.rstrip() + "\n", f"{where}: $ {command}")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.exhaustive] if path.name in SLOW else [])
        for path in DOCUMENTS
    ],
    ids=[path.name for path in DOCUMENTS],
)
def test_a_document_tells_the_truth(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks(path.read_text(encoding="utf-8")):
        where = f"{path.name}:{block.line}"
        if block.language == "text" and block.follows and printed is not None:
            check_output(block.text, printed, where)
        printed = None
        if block.language == "python":
            printed = run_python(block, namespace, path)
        elif block.language == "console":
            run_console(block, capsys, where)
        elif block.language == "dyna":
            assert parse_program(block.text, where).rules


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path):
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://")):
            assert (path.parent / target).exists(), f"{path.name}: nothing at {target}"


def test_a_planted_lie_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    python, text, session = blocks(
        "```python\nprint(1)\n```\n\n```text\n2\n```\nand\n```python\n>>> 1\n2\n```\n"
    )
    assert text.follows
    assert not session.follows
    with pytest.raises(AssertionError, match="must print"):
        check_output(text.text, run_python(python, {}, tmp_path), "here")
    with pytest.raises(AssertionError, match="Expected"):
        run_python(session, {}, tmp_path)
    with pytest.raises(AssertionError, match="must print"):
        run_console(Block("console", "$ inout --version\nnothing\n", 1, False), capsys, "here")
