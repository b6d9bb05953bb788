from inout._core.errors import AmbiguousFactsError as AmbiguousFactsError
from inout.io.facts import read_facts as read_facts
from inout.io.facts import read_value as read_value
from inout.io.files import check_readable as check_readable
from inout.io.files import check_writable as check_writable
from inout.io.files import read_text as read_text
from inout.io.files import write_bytes as write_bytes
from inout.io.files import write_text as write_text
