"""Objectives beyond the likelihood: torch losses, each a function of a distribution."""

from inout.moments.curvature import hessian_vector_product as hessian_vector_product
from inout.moments.expectation_criteria import expectation_criterion as expectation_criterion
from inout.moments.expectation_criteria import label_expectations as label_expectations
from inout.moments.f_measure import expected_f as expected_f
from inout.moments.f_measure import expected_f_of_event as expected_f_of_event
from inout.moments.hamming import log_marginals as log_marginals
from inout.moments.risk import hamming_risk as hamming_risk
from inout.moments.risk import label_marginals as label_marginals
from inout.moments.risk import risk as risk
from inout.moments.risk import risk_variance as risk_variance
