"""`inout demo`."""

from __future__ import annotations

from inout.cli.commands.options import HtmlOption

EXAMPLES = """[bold]Examples[/bold]

  inout demo
  inout demo --html demo.html
"""


def demo(html: HtmlOption = None) -> None:
    """A sentence with two readings: its trees, their probabilities, the expected counts."""
    from inout.cli.progress import status

    with status() as line:
        from inout.cli.demo import LEAD, SENTENCE, print_demo, solve_demo
        from inout.cli.html_report import as_html
        from inout.cli.paper import Paper
        from inout.io import check_writable, write_text

        if html is not None:
            check_writable(html)
        line.warn_of_compilation()
        answer = solve_demo()
    paper = Paper()
    print_demo(paper, answer)
    if html is not None:
        write_text(html, as_html(answer, SENTENCE, LEAD))
        paper.note_file(html)
