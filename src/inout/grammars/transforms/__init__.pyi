from inout.grammars.transforms.base import Composition as Composition
from inout.grammars.transforms.base import Selection as Selection
from inout.grammars.transforms.base import Transform as Transform
from inout.grammars.transforms.base import WayBack as WayBack
from inout.grammars.transforms.binarisation import Binarisation as Binarisation
from inout.grammars.transforms.null_removal import NullRemoval as NullRemoval
from inout.grammars.transforms.pieces import random_numbers as random_numbers
from inout.grammars.transforms.unary_removal import UnaryRemoval as UnaryRemoval
