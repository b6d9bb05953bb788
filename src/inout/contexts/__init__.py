"""Reified context models: how much of the past a label depends on is chosen at run time."""

from inout.contexts.chain import ContextChain as ContextChain
from inout.contexts.context_set import ContextSet as ContextSet
from inout.contexts.exactness import Exactness as Exactness
from inout.contexts.exactness import exactness as exactness
from inout.contexts.history_features import HistoryFeature as HistoryFeature
from inout.contexts.model import ContextModel as ContextModel
