"""Formatted output, for a terminal with its colours and width or for a plain file."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import Box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from inout.viz import TreeNode
from inout.viz.branches import branches
from inout.viz.text import bar
from inout.viz.text import tree as indented

# One rule under the header, as in viz.text.table.
_RULED = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")

FILE_WIDTH = 100
BAR_WIDTH = 20
MOST_LINES = 200  # of one drawing


class Paper:
    """A console that truncates long lines on a terminal, but not in a file."""

    def __init__(self) -> None:
        terminal = Console(highlight=False)
        self.is_terminal = terminal.is_terminal
        self.width = terminal.width if terminal.is_terminal else FILE_WIDTH
        # A file has no width to squeeze tables into.
        self.console = terminal if terminal.is_terminal else Console(highlight=False, width=10_000)

    def line(self, text: str | Text = "", style: str = "") -> None:
        """Print one line, or a drawing of several."""
        self.console.print(
            text if isinstance(text, Text) else Text(text, style=style),
            no_wrap=True,
            overflow="ellipsis" if self.is_terminal else "ignore",
            crop=self.is_terminal,
        )

    def heading(self, text: str, note: str = "") -> None:
        """Print a section heading, with a remark beside it."""
        self.line()
        self.line(Text.assemble((text, "bold"), (f"  {note}" if note else "", "dim")))
        self.line()

    def sentence(self, text: str, style: str = "", indent: int = 0) -> None:
        """Print running text, wrapped."""
        padded = Padding(Text(text, style=style), (0, 0, 0, indent), expand=False)
        self.console.print(padded, width=min(self.width, FILE_WIDTH))

    def table(
        self,
        headers: Sequence[str],
        rows: Sequence[Sequence[str | Text]],
        align: str,
        indent: int = 0,
    ) -> None:
        """Print rows under ruled headers; `align` has a letter l or r for each column."""
        table = Table(box=_RULED, show_edge=False, pad_edge=False, header_style="dim")
        for header, side in zip(headers, align, strict=True):
            table.add_column(Text(header), justify="right" if side == "r" else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
        self.console.print(Padding(table, (0, 0, 0, indent), expand=False))

    def pairs(self, rows: Sequence[tuple[str, str | Text]], indent: int = 0) -> None:
        """Print names and their descriptions, in two columns."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column()
        for name, text in rows:
            grid.add_row(Text(name), Text(text) if isinstance(text, str) else text)
        self.console.print(Padding(grid, (0, 0, 0, indent), expand=False))

    def ranked(self, name: str, probability: str, share: float, log_weight: str) -> None:
        """Print the heading of a tree: its rank, its probability with a bar, its log-weight."""
        about, weight = f"  probability {probability}  ", (f"  log-weight {log_weight}", "dim")
        self.line(Text.assemble((name, "bold"), about, bar_text(share), weight))
        self.line()

    def drawing(self, text: str, rest: str) -> None:
        """Print an indented drawing; `rest` says where to find the whole of a long one."""
        lines = text.split("\n")
        for line in lines[:MOST_LINES]:
            self.line(f"   {line}")
        if len(lines) > MOST_LINES:
            self.line(f"   … {len(lines) - MOST_LINES:,} more lines; {rest}", "dim")

    def note_file(self, path: str) -> None:
        """Say that a file was written."""
        self.line()
        self.line(f"wrote {path}", "dim")


def draw(tree: TreeNode, width: int) -> str:
    """The tree with its root on top if it fits, otherwise one node per line."""
    return branches(tree, max_width=width, max_depth=40) or indented(tree)


def bar_text(value: float, largest: float = 1.0) -> Text:
    """A bar for a value, full at `largest`."""
    return Text(bar(value / max(largest, 1e-300), BAR_WIDTH), style="blue")
