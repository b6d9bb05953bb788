"""Layers for torch networks: structured models on top of an encoder, with their own parameters."""

from inout.nn.crf import CRF as CRF
from inout.nn.ctc_head import CTCHead as CTCHead
from inout.nn.dependency_crf import DependencyCRF as DependencyCRF
from inout.nn.layer import Span as Span
from inout.nn.layer import StructuredLayer as StructuredLayer
from inout.nn.rnnt_loss import RNNTLoss as RNNTLoss
from inout.nn.semi_crf import SemiCRF as SemiCRF
from inout.nn.soft_dtw import SoftDTW as SoftDTW
from inout.nn.tree_crf import TreeCRF as TreeCRF
