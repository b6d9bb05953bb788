from inout.deduction.facts import Facts as Facts
from inout.deduction.program import Program as Program
