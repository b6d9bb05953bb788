"""Fold an RNA: which bases pair, by the grammar of Knudsen & Hein (1999).

    python examples/rna_folding.py [SEQUENCE]

S -> L S | L,  L -> x F y | x,  F -> x F y | L S: x and y are bases, x F y is a pair of them. The
words of a sentence need not be words.
"""

import sys

from inout import Grammar, Parser

SINGLE = {"A": 0.364097, "C": 0.151009, "G": 0.211881, "U": 0.273013}
PAIR = {
    "AU": 0.177977, "UA": 0.177977, "CG": 0.266974, "GC": 0.266974, "GU": 0.049043, "UG": 0.049043,
    "AA": 0.001167, "AC": 0.001806, "AG": 0.001058, "CA": 0.001806, "CC": 0.000391, "CU": 0.000763,
    "GA": 0.001058, "GG": 0.000406, "UC": 0.000763, "UU": 0.002793,
}  # fmt: skip
# Yeast's tRNA for phenylalanine; of its four stems the grammar is sure of one.
TRNA = "GCGGAUUUAGCUCAGUUGGGAGAGCGCCAGACUGAAGAUCUGGAGGUCCUGUGUUCGAUCCACAGAAUUCGCACCA"


def pfold() -> Grammar:
    lines = ["S -> L S [0.868534] | L [0.131466]", "F -> L S [0.21236]"]
    lines += [f"L -> '{x}' [{0.894603 * p!r}]" for x, p in SINGLE.items()]
    for head, share in (("L", 0.105397), ("F", 0.78764)):
        lines += [f"{head} -> '{xy[0]}' F '{xy[1]}' [{share * p!r}]" for xy, p in PAIR.items()]
    return Grammar.from_text("\n".join(lines))


def main(sequence: str) -> None:
    parser = Parser(pfold())
    analyses = parser.given(list(sequence))
    print(f"log P(sequence) = {float(analyses.log_partition()):.2f}\n")
    print(sequence)
    # A pair is a rule of three symbols over a span: add up those of L and of F.
    pairs: dict[tuple[int, int], float] = {}
    for (rule, start, end), probability in analyses.marginals().rules.items():
        if parser.grammar.rules[rule].arity == 3:
            pairs[start, end - 1] = pairs.get((start, end - 1), 0.0) + probability
    # Pairs that are likelier than not cannot cross or share a base.
    likely = {pair: p for pair, p in pairs.items() if p > 0.5}
    marks = ["."] * len(sequence)
    for i, j in likely:
        marks[i], marks[j] = "(", ")"
    print("".join(marks), "pairs likelier than not\n")
    for (i, j), p in sorted(likely.items()):
        print(f"{sequence[i]}{i + 1:<3} {sequence[j]}{j + 1:<3} {p:.2f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else TRNA)
