"""Models as scikit-learn estimators; needs the extra `estimators`."""

from inout.estimators.context_tagger import ContextTagger as ContextTagger
