"""Weighted context-free grammars: rules, formats, diagnoses."""

from inout.grammars.diagnostics import Consistency as Consistency
from inout.grammars.diagnostics import Diagnosis as Diagnosis
from inout.grammars.diagnostics import diagnose as diagnose
from inout.grammars.expectations import Expectations as Expectations
from inout.grammars.formats import GrammarError as GrammarError
from inout.grammars.grammar import Grammar as Grammar
from inout.grammars.grammar import Trimmed as Trimmed
from inout.grammars.rule import Rule as Rule
from inout.grammars.rule import Symbol as Symbol
from inout.grammars.rule import Terminal as Terminal
from inout.grammars.structure import UnaryCycle as UnaryCycle
from inout.grammars.table import RuleTable as RuleTable
