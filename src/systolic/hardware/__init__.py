"""Facts about chips: what each generation can do, which of them this machine has, and who holds them."""

from ._chip_table import CHIPS as CHIPS
from ._chip_table import Chip as Chip
from ._chip_table import chip_of as chip_of
from ._chips import Holder as Holder
from ._chips import Holders as Holders
from ._chips import chip_files as chip_files
from ._chips import find_holders as find_holders
from ._chips import is_locked as is_locked
from ._chips import lock_file as lock_file
from ._huge_pages import HUGE_PAGES as HUGE_PAGES
from ._huge_pages import wants_huge_pages as wants_huge_pages
from ._libtpu import quiet_libtpu as quiet_libtpu
from ._no_tpu import no_tpu as no_tpu
from ._peaks import peak_flops as peak_flops
