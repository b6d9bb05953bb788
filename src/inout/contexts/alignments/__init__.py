"""Monotone alignments of an input with an output, and models that predict both."""

from inout.contexts.alignments.alignment import Alignment as Alignment
from inout.contexts.alignments.model import AlignmentModel as AlignmentModel
from inout.contexts.alignments.model import AlignmentSettings as AlignmentSettings
