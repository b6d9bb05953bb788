"""Spectral learning of latent-variable grammars (Cohen et al. 2012, 2013)."""

from inout.latent.spectral.bound import ErrorBound as ErrorBound
from inout.latent.spectral.estimation import SpectralEstimate as SpectralEstimate
from inout.latent.spectral.estimation import fit_spectral as fit_spectral
from inout.latent.spectral.features import DEFAULT as DEFAULT
from inout.latent.spectral.features import PAPER as PAPER
from inout.latent.spectral.features import Features as Features
from inout.latent.spectral.heads import HeadTable as HeadTable
from inout.latent.spectral.moments import grammar_of as grammar_of
from inout.latent.spectral.options import Estimator as Estimator
from inout.latent.spectral.options import Shrinkage as Shrinkage
from inout.latent.spectral.vectors import Conditioning as Conditioning
from inout.latent.spectral.vectors import NodeVectors as NodeVectors
