"""Power series and generating functions, which give the moments of additive functions."""

from inout.series.generating import Generating as Generating
from inout.series.histogram import Histogram as Histogram
from inout.series.histogram import histogram as histogram
from inout.series.lanes import Lanes as Lanes
from inout.series.lanes import Points as Points
from inout.series.lanes import Truncated as Truncated
from inout.series.lanes import mix as mix
from inout.series.moments import Method as Method
from inout.series.moments import Moments as Moments
from inout.series.moments import as_lists as as_lists
from inout.series.moments import moments as moments
