from inout.deduction import Program
from inout.programs.facts import brackets as brackets
from inout.programs.facts import categorial_lexicon as categorial_lexicon
from inout.programs.facts import earley_rules as earley_rules
from inout.programs.facts import elementary_trees as elementary_trees
from inout.programs.facts import sentence as sentence
from inout.programs.facts import sentence_pair as sentence_pair
from inout.programs.facts import synchronous_rules as synchronous_rules
from inout.programs.left_corner import left_corner_closure as left_corner_closure
from inout.programs.library import describe as describe
from inout.programs.library import load as load
from inout.programs.library import names as names
from inout.programs.library import text as text

def __getattr__(name: str) -> Program: ...
