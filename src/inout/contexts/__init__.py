"""Reified context models: how much of the past a label depends on is chosen at run time."""

from inout.contexts.alignments import Alignment as Alignment
from inout.contexts.alignments import AlignmentModel as AlignmentModel
from inout.contexts.alignments import AlignmentSettings as AlignmentSettings
from inout.contexts.chain import ContextChain as ContextChain
from inout.contexts.confidence import precision_recall as precision_recall
from inout.contexts.confidence import recall_at as recall_at
from inout.contexts.confidence import threshold_at as threshold_at
from inout.contexts.context_set import ContextSet as ContextSet
from inout.contexts.exactness import Exactness as Exactness
from inout.contexts.exactness import Refined as Refined
from inout.contexts.exactness import exactness as exactness
from inout.contexts.exactness import refined as refined
from inout.contexts.hidden_markov import ContextHiddenMarkovModel as ContextHiddenMarkovModel
from inout.contexts.history_features import HistoryFeature as HistoryFeature
from inout.contexts.language_model import NGramLanguageModel as NGramLanguageModel
from inout.contexts.model import ContextModel as ContextModel
from inout.contexts.model import Settings as Settings
from inout.contexts.model import Tagging as Tagging
