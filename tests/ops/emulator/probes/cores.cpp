// Several cores: races on global memory, the data cache, and SyncAll.
#include "probe.h"

PROBE(race_write_write, {
  p.fill();
  DataCopyPad(p.io[wrong ? 0 : 4 * GetBlockIdx()], p.a, bytes(16));
})

PROBE(race_write_read, {
  p.fill();
  DataCopy(p.io[GetBlockIdx() * kTile], p.a, kTile);
  if (!wrong) SyncAll();
  const int64_t next = (GetBlockIdx() + 1) % GetBlockNum();
  PipeBarrier<PIPE_ALL>();
  DataCopy(p.b, p.io[next * kTile], kTile);
})

PROBE(race_read_write, {  // core 1 changes what core 0 reads
  if (GetBlockIdx() == 0) DataCopy(p.a, p.io, kTile);
  if (!wrong) SyncAll();
  if (GetBlockIdx() == 1) {
    p.fill();
    DataCopy(p.io, p.a, kTile);
  }
})

PROBE(race_second_round, {  // the loop's next round overwrites what others still read
  for (int round = 0; round < 2; ++round) {
    p.fill();
    DataCopy(p.work[GetBlockIdx() * kTile], p.a, kTile);
    SyncAll();
    DataCopy(p.b, p.work[(GetBlockIdx() + 1) % GetBlockNum() * kTile], kTile);
    if (!wrong) SyncAll();
  }
})

PROBE(race_scalar, {  // 64 bytes apart, but read by the neighbour
  p.io.SetValue(GetBlockIdx() * 16, 1.0f);
  DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(
      p.io[GetBlockIdx() * 16]);
  if (!wrong) SyncAll();
  p.io.GetValue((GetBlockIdx() + 1) % GetBlockNum() * 16);
})

PROBE(cache_not_cleaned, {
  p.io.SetValue(GetBlockIdx() * 16, 1.0f);
  if (!wrong) DataCacheCleanAndInvalid(p.io[GetBlockIdx() * 16]);
})

PROBE(cache_half_cleaned, {  // from the middle of the line, only its second half is
  p.io.SetValue(GetBlockIdx() * 16 + 1, 1.0f);
  DataCacheCleanAndInvalid(p.io[GetBlockIdx() * 16 + (wrong ? 8 : 0)]);
})

PROBE(cache_all_cleaned, {
  for (int i = 0; i < 4; ++i) p.io.SetValue(GetBlockIdx() * 64 + 16 * i, 1.0f);
  if (wrong) {
    DataCacheCleanAndInvalid(p.io[GetBlockIdx() * 64]);
  } else {
    DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(p.io);
  }
})

PROBE(cache_dirty_copy, {  // a copy does not see the cache
  p.io.SetValue(GetBlockIdx() * 16, 1.0f);
  if (!wrong) DataCacheCleanAndInvalid(p.io[GetBlockIdx() * 16]);
  p.sync<HardEvent::S_MTE2>();
  DataCopy(p.a, p.io[GetBlockIdx() * 16], 16);
  if (wrong) DataCacheCleanAndInvalid(p.io[GetBlockIdx() * 16]);
})

PROBE(cache_dirty_other, {  // nor does another core
  if (GetBlockIdx() == 0) {
    p.work.SetValue(0, 1.0f);
    if (!wrong) DataCacheCleanAndInvalid(p.work);
  }
  SyncAll();
  if (GetBlockIdx() == 1) DataCopyPad(p.a, p.work, bytes(4), no_pad());
  SyncAll();
  if (GetBlockIdx() == 0 && wrong) DataCacheCleanAndInvalid(p.work);
})

PROBE(cache_cleaned_late, {  // the other core may have read before
  if (GetBlockIdx() == 0) p.io.SetValue(0, 1.0f);
  if (GetBlockIdx() == 0 && !wrong) DataCacheCleanAndInvalid(p.io);
  SyncAll();
  if (GetBlockIdx() == 0 && wrong) DataCacheCleanAndInvalid(p.io);
  if (GetBlockIdx() == 1) p.io.GetValue(0);
})

PROBE(cache_stale, {
  if (GetBlockIdx() == 1) p.io.GetValue(0);
  SyncAll();
  if (GetBlockIdx() == 0) {
    p.fill();
    DataCopy(p.io, p.a, kTile);
  }
  SyncAll();
  if (GetBlockIdx() == 1) {
    if (!wrong) DataCacheCleanAndInvalid(p.io);
    p.io.GetValue(0);
  }
})

PROBE(cache_stale_neighbour, {  // another element of the line was read before
  if (GetBlockIdx() == 1) p.io.GetValue(wrong ? 3 : 16);
  SyncAll();
  if (GetBlockIdx() == 0) {
    p.fill();
    DataCopyPad(p.io, p.a, bytes(4));
  }
  SyncAll();
  if (GetBlockIdx() == 1) p.io.GetValue(0);
})

PROBE(cache_stale_own_copy, {  // a core's own copy goes past its cache, too
  p.io.GetValue(GetBlockIdx() * 16);
  PipeBarrier<PIPE_ALL>();
  p.fill();
  DataCopy(p.io[GetBlockIdx() * 16], p.a, 16);
  PipeBarrier<PIPE_ALL>();
  if (!wrong) DataCacheCleanAndInvalid(p.io[GetBlockIdx() * 16]);
  p.io.GetValue(GetBlockIdx() * 16);
})

PROBE(cache_shared, {
  const int64_t at = GetBlockIdx() * (wrong ? 1 : 16);
  p.io.SetValue(at, 1.0f);
  DataCacheCleanAndInvalid(p.io[at / 16 * 16]);
})

PROBE(cache_shared_later, {  // SyncAll does not clean
  if (GetBlockIdx() == 0) p.io.SetValue(0, 1.0f);
  if (GetBlockIdx() == 0 && !wrong) DataCacheCleanAndInvalid(p.io);
  SyncAll();
  if (GetBlockIdx() == 1) {
    p.io.SetValue(1, 1.0f);
    DataCacheCleanAndInvalid(p.io);
  }
  SyncAll();
  if (GetBlockIdx() == 0) DataCacheCleanAndInvalid(p.io);
})

PROBE(cache_shared_copy, {  // core 0 copies into the line that core 1 changes with SetValue
  if (GetBlockIdx() == 0) {
    p.fill();
    DataCopyPad(p.io, p.a, bytes(4));
  } else if (GetBlockIdx() == 1) {
    p.io.SetValue(wrong ? 8 : 16, 1.0f);
    DataCacheCleanAndInvalid(p.io[wrong ? 8 : 16]);
  }
})

PROBE(cache_shared_own_copy, {  // the line is written back over the copy
  p.io.SetValue(GetBlockIdx() * 16, 1.0f);
  if (!wrong) DataCacheCleanAndInvalid(p.io[GetBlockIdx() * 16]);
  PipeBarrier<PIPE_ALL>();
  p.fill();
  DataCopyPad(p.io[GetBlockIdx() * 16 + 8], p.a, bytes(4));
  if (wrong) DataCacheCleanAndInvalid(p.io[GetBlockIdx() * 16]);
})

PROBE(sync_all_missed, {
  if (!wrong || GetBlockIdx() != 2) SyncAll();
})

PROBE(sync_all_twice, {
  SyncAll();
  if (!wrong || GetBlockIdx() == 0) SyncAll();
})

PROBE(sync_all_type, {
  if (wrong) KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  SyncAll();
})
