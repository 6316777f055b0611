"""Data: global batches out of loaders, fast fetching, combined loaders, batches as trees, buckets for ragged data."""

from systolic.data._batch import BatchSpec as BatchSpec
from systolic.data._batch import batch_size_of as batch_size_of
from systolic.data._batch import flatten_batch as flatten_batch
from systolic.data._batch import unflatten_batch as unflatten_batch
from systolic.data._bucket_sampler import BucketBatchSampler as BucketBatchSampler
from systolic.data._bucket_sampler import measure_lengths as measure_lengths
from systolic.data._buckets import masked_mean as masked_mean
from systolic.data._combined import CombinedLoader as CombinedLoader
from systolic.data._errors import EmptyLoaderError as EmptyLoaderError
from systolic.data._errors import NotIterableError as NotIterableError
from systolic.data._fast_fetch import is_vectorised as is_vectorised
from systolic.data._fast_fetch import iterate as iterate
from systolic.data._limits import check_limit as check_limit
from systolic.data._limits import check_loader as check_loader
from systolic.data._limits import empty_loader_error as empty_loader_error
from systolic.data._limits import has_len as has_len
from systolic.data._limits import limit_batches as limit_batches
from systolic.data._limits import num_batches as num_batches
from systolic.data._merge import MergedLoader as MergedLoader
from systolic.data._merge import concatenate_batches as concatenate_batches
from systolic.data._pad_batches import BatchPadder as BatchPadder
from systolic.data._pad_batches import PaddedBatch as PaddedBatch
from systolic.data._pad_batches import mask_of as mask_of
from systolic.data._pad_collate import PadCollate as PadCollate
from systolic.data._rebuild import scale_loader as scale_loader
from systolic.data._samplers import set_epoch as set_epoch
