"""`inout fit`."""

from __future__ import annotations

from inout._core.checks import expect
from inout.cli.commands import options as opt
from inout.cli.commands.solve import pair
from inout.cli.progress import status

METHODS = ("em", "stepwise")
FORMS = ("sentences", "pairs", "facts")

EXAMPLES = """[bold]What is trained[/bold]

Lines such as 1 = rule(X,_,_) + rule(X,_). in the program say which weights sum to one: these are \
trained, starting from those in the files. --group replaces these lines.

[bold]Corpus[/bold]

  sentences  one per line, words separated by spaces: word(W,I,K) and length(N)
  pairs      two sentences with a tab between them: source, target and their lengths
  facts      one fact per line: relation, values, perhaps a weight, with tabs between them; an \
empty line ends an example

By default the form follows from the relations that --facts does not give. Facts are as for \
`inout solve`. FOLDER gets a file NAME.tsv for each relation that was trained.

[bold]Examples[/bold]

  inout fit hmm --facts transition=t.tsv --facts emission=e.tsv --facts start=s.tsv \\
            --facts stop=s.tsv --corpus sentences.txt -o trained --restarts 5
  inout fit cnf_inside --facts rule=grammar.tsv --fact start=S --corpus sentences.txt -o trained
  inout fit mine.dyna --facts edge=e.tsv --group "edge(X,_)" --corpus examples.tsv -o trained
"""


def fit(
    program: str = opt.PROGRAM,
    corpus: list[str] = opt.option("--corpus", "FILE", "Examples; - is stdin. Repeatable.", ...),
    out: str = opt.option("--out -o", "FOLDER", "Where to write the trained facts.", ...),
    facts: list[str] | None = opt.option(
        "--facts", "NAME=FILE", "Facts that all examples share. Repeatable."
    ),
    fact: list[str] | None = opt.option(
        "--fact", "NAME=VALUES", "Such a fact of weight one. Repeatable."
    ),
    form: str | None = opt.option(
        "--from", "FORM", "Form of the corpus: sentences, pairs or facts.", shown="detected"
    ),
    characters: bool = opt.flag("--characters", "Every character of a sentence is a word."),
    frequencies: bool = opt.flag("--frequencies", "Each line begins with a frequency and a tab."),
    group: list[str] | None = opt.option(
        "--group", "SUM", 'Weights that sum to one: "rule(X,_,_) + rule(X,_)". Repeatable.'
    ),
    method: str = opt.option("--method", "NAME", "em, or stepwise: by minibatches.", "em"),
    batch_size: int = opt.option("--batch-size", "N", "Examples of a minibatch.", 100),
    step: float = opt.option("--step", "A", "Step k of stepwise EM has the size (k+2)^-A.", 0.7),
    iterations: int = opt.ITERATIONS,
    tolerance: float = opt.TOLERANCE,
    restarts: int = opt.RESTARTS,
    seed: int = opt.RESTARTS_SEED,
    prior: float | None = opt.option("--prior", "X", "Add X to the expected count of every fact."),
    probabilities: bool = opt.PROBABILITIES,
    weighted: list[str] | None = opt.WEIGHTED,
    unweighted: list[str] | None = opt.UNWEIGHTED,
    goal: str = opt.GOAL,
    max_edges: int | None = opt.MAX_EDGES,
    max_rounds: int | None = opt.MAX_ROUNDS,
    checkpoint: str | None = opt.option("--checkpoint", "FILE", "File for the checkpoint."),
    resume: bool = opt.RESUME,
    as_json: bool = opt.JSON,
) -> None:
    """Train the weights of a program's facts on examples, by EM or stepwise EM."""
    opt.count("--iterations", iterations, 0)
    opt.count("--restarts", restarts, 0)
    opt.count("--batch-size", batch_size, 1)
    opt.check_seed(seed)
    opt.choice("--method", method, METHODS)
    expect(tolerance >= 0, "--tolerance", "must be at least 0", tolerance)
    expect(0 <= step <= 1, "--step", "must be from 0 to 1", step)
    with status() as line:
        from inout.cli.equations.program import Request, read_program
        from inout.cli.grammars.loading import read_sentences

        opt.optional_choice("--from", form, FORMS)
        request = Request(
            program=program,
            files=[pair("--facts", text, "FILE") for text in facts or []],
            single=[(name, values) for name, _, values in (t.partition("=") for t in fact or [])],
            goal=goal,
            weighted=weighted or [],
            unweighted=unweighted or [],
            probabilities=probabilities,
            max_edges=max_edges,
            max_rounds=max_rounds,
        )
        source = read_program(request)
        lines = read_sentences(corpus, [])
        line.prepare("solve")
        from inout.cli.equations import fit as work
        from inout.cli.grammars import em as report

        line.say("reading the corpus")
        problem = work.read(source, request, corpus, lines, form, characters, frequencies, group)
    trained = work.train(
        problem,
        out,
        checkpoint=checkpoint,
        resume=resume,
        seed=seed,
        stepwise=work.minibatches(method, batch_size, step),
        restarts=restarts,
        prior=report.chosen_prior(prior, None),
        tolerance=tolerance,
        max_iterations=iterations,
    )
    report.print_notes(problem.corpus, trained)
    if as_json:
        print(report.as_json(out, problem.corpus, trained, work.FORMAT))
    else:
        print(work.as_text(problem, trained, out))
