"""Processes of one run: which one this is, and how they agree. Only this room knows JAX's distributed runtime."""

from ._agreement import agree as agree
from ._agreement import barrier as barrier
from ._agreement import broadcast as broadcast
from ._attached import Ending as Ending
from ._attached import run_attached as run_attached
from ._launch import Pod as Pod
from ._process import is_main_process as is_main_process
from ._process import join_processes as join_processes
from ._process import local_devices as local_devices
from ._process import on_every_process as on_every_process
from ._process import process_count as process_count
from ._process import process_index as process_index
from ._tpu_slice import TpuSlice as TpuSlice
from ._tpu_slice import copy_command as copy_command
from ._tpu_slice import run_command as run_command
from ._tpu_startup import startup_script as startup_script
from ._transfer import broadcast_arrays as broadcast_arrays
from ._transfer import gather_to_host as gather_to_host
from ._transfer import join_parts as join_parts
from ._transfer import make_global_array as make_global_array
