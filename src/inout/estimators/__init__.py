"""Models as estimators of scikit-learn; needs the extra `estimators`."""

from inout.estimators.context_tagger import ContextTagger as ContextTagger
