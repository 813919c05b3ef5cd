// Bounds, alignment, who owns a buffer, and what has a value.
#include "probe.h"

PROBE(ub_overflow, {
  TBuf<> rest;
  const uint32_t used = 2 * 256 + 256 + 4 * 256;
  p.pipe.InitBuffer(rest, 192 * 1024 - used + (wrong ? 1 : 0));
})

PROBE(ub_bounds, {
  p.fill();
  Adds(p.b, p.a, 1.0f, wrong ? kTile + 1 : kTile);
})

PROBE(ub_element, {
  p.fill();
  p.a.GetValue(wrong ? kTile : kTile - 1);
})

PROBE(ub_offset, {
  p.fill();
  p.a[wrong ? kTile + 1 : kTile];
})

PROBE(ub_part, {
  p.fill();
  LocalTensor<float> part = p.a[32];
  Adds(p.b, part, 1.0f, wrong ? 33 : 32);
})

PROBE(tbuf_size, { p.x.Get<float>(wrong ? kTile + 1 : kTile); })

PROBE(select_reserve, {
  TBuf<> rest;
  const uint32_t used = 2 * 256 + 256 + 4 * 256;
  p.pipe.InitBuffer(rest, 184 * 1024 - used + (wrong ? 32 : 0));
  p.fill();
  LocalTensor<uint8_t> bits = p.bits.Get<uint8_t>();
  CompareScalar(bits, p.a, 0.0f, CMPMODE::GT, kTile);
  Select(p.b, bits, p.a, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, kTile);
})

PROBE(select_reserve_later, {  // a buffer that comes after the Select counts, too
  p.fill();
  LocalTensor<uint8_t> bits = p.bits.Get<uint8_t>();
  CompareScalar(bits, p.a, 0.0f, CMPMODE::GT, kTile);
  Select(p.b, bits, p.a, p.a, SELMODE::VSEL_TENSOR_TENSOR_MODE, kTile);
  TBuf<> rest;
  const uint32_t used = 2 * 256 + 256 + 4 * 256;
  p.pipe.InitBuffer(rest, 184 * 1024 - used + (wrong ? 32 : 0));
})

PROBE(reduce_scratch, {
  p.fill();
  LocalTensor<float> scratch = p.bits.Get<float>();
  scratch.SetSize(wrong ? 15 : 16);
  ReduceMax(p.b, p.a, scratch, kTile, true);
})

PROBE(copy_size, { DataCopy(p.a, p.in, wrong ? 12 : 16); })

PROBE(copy_out_size, {
  p.fill();
  DataCopy(p.io, p.a, wrong ? 12 : 16);
})

PROBE(copy_address, { DataCopyPad(p.a[wrong ? 4 : 8], p.in, bytes(16), no_pad()); })

PROBE(vector_address, {
  p.fill();
  Adds(p.b, p.a[wrong ? 4 : 8], 1.0f, 8);
})

PROBE(reduce_address, {
  p.fill();
  LocalTensor<float> scratch = p.bits.Get<float>();
  ReduceMax(p.b[wrong ? 1 : 2], p.a, scratch, kTile, true);
})

PROBE(reduce_value_address, {  // without the index 4 bytes are enough
  p.fill();
  LocalTensor<float> scratch = p.bits.Get<float>();
  ReduceMax(p.b[1], p.a, scratch, kTile, wrong);
})

PROBE(compare_size, {
  TBuf<> wide;
  p.pipe.InitBuffer(wide, 512);
  LocalTensor<float> values = wide.Get<float>();
  Duplicate(values, 1.0f, 128);
  CompareScalar(p.bits.Get<uint8_t>(), values, 0.0f, CMPMODE::GT, wrong ? 100 : 128);
})

PROBE(gm_address, {
  GlobalTensor<float> odd;
  odd.SetGlobalBuffer(
      reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(p.tensors.in) + (wrong ? 2 : 4)), 64);
  DataCopy(p.a, odd, 16);
})

PROBE(gm_read, { DataCopyPad(p.a, p.in[kFloats - 16], bytes(wrong ? 68 : 64), no_pad()); })

PROBE(gm_write, {
  p.fill();
  DataCopyPad(p.io[kFloats - 16], p.a, bytes(wrong ? 68 : 64));
})

PROBE(gm_outside, { p.in.GetValue(wrong ? kFloats + 1000000 : 0); })

PROBE(gm_neighbour, {  // far enough to land in another tensor
  const int64_t far = p.tensors.work - p.tensors.in;
  p.in.GetValue(wrong ? far : 0);
})

PROBE(gm_declared, {
  GlobalTensor<float> part;
  part.SetGlobalBuffer(p.tensors.in, 32);
  DataCopyPad(p.a, part[16], bytes(wrong ? 68 : 64), no_pad());
})

PROBE(gm_gap, { DataCopyPad(p.a, p.table[2 * kPitchFloats], bytes(wrong ? 244 : 240), no_pad()); })

PROBE(gm_rows, {  // whole rows, without and with the gaps between
  const uint32_t gap = wrong ? 0 : (kPitchFloats - kRowFloats) * 4;
  TBuf<> wide;
  p.pipe.InitBuffer(wide, 1024);
  DataCopyPad(wide.Get<float>(), p.table, DataCopyExtParams(3, kRowFloats * 4, gap, 0, 0),
              no_pad());
})

PROBE(read_only, {
  p.fill();
  DataCopy(wrong ? p.in : p.io, p.a, kTile);
})

PROBE(queue_alloc, {
  LocalTensor<float> t[3];
  const int count = wrong ? 3 : 2;
  for (int i = 0; i < count; ++i) t[i] = p.inputs.AllocTensor<float>();
  for (int i = 0; i < count; ++i) p.inputs.FreeTensor(t[i]);
})

PROBE(queue_depth, {
  LocalTensor<float> first = p.inputs.AllocTensor<float>();
  LocalTensor<float> second = p.inputs.AllocTensor<float>();
  p.inputs.EnQue(first);
  if (!wrong) first = p.inputs.DeQue<float>();
  p.inputs.EnQue(second);
  second = p.inputs.DeQue<float>();
  p.inputs.FreeTensor(first);
  p.inputs.FreeTensor(second);
})

PROBE(queue_empty, {
  LocalTensor<float> t = p.inputs.AllocTensor<float>();
  if (!wrong) p.inputs.EnQue(t);
  t = p.inputs.DeQue<float>();
  p.inputs.FreeTensor(t);
})

PROBE(queue_leak, {
  LocalTensor<float> t = p.inputs.AllocTensor<float>();
  if (!wrong) p.inputs.FreeTensor(t);
})

PROBE(queue_free_twice, {
  LocalTensor<float> t = p.inputs.AllocTensor<float>();
  p.inputs.FreeTensor(t);
  if (wrong) p.inputs.FreeTensor(t);
})

PROBE(queue_free_part, {
  LocalTensor<float> t = p.inputs.AllocTensor<float>();
  LocalTensor<float> part = t[8];
  if (wrong) {
    p.inputs.FreeTensor(part);
  } else {
    p.inputs.FreeTensor(t);
  }
})

PROBE(queue_other, {
  LocalTensor<float> t = p.inputs.AllocTensor<float>();
  if (wrong) {
    p.outputs.FreeTensor(t);
  } else {
    p.inputs.FreeTensor(t);
  }
})

PROBE(use_after_free, {
  LocalTensor<float> t = p.outputs.AllocTensor<float>();
  if (!wrong) Duplicate(t, 1.0f, kTile);
  p.outputs.FreeTensor(t);
  if (wrong) Duplicate(t, 1.0f, kTile);
})

PROBE(use_while_queued, {
  LocalTensor<float> t = p.inputs.AllocTensor<float>();
  DataCopy(t, p.in, kTile);
  p.inputs.EnQue(t);
  if (wrong) Adds(p.a, t, 1.0f, kTile);
  LocalTensor<float> ready = p.inputs.DeQue<float>();
  if (!wrong) Adds(p.a, ready, 1.0f, kTile);
  p.inputs.FreeTensor(ready);
})

PROBE(no_init_buffer, {
  TBuf<> never;
  if (!wrong) p.pipe.InitBuffer(never, 32);
  never.Get<float>();
})

PROBE(uninitialised_ub, {
  Duplicate(p.a, 1.0f, wrong ? kTile - 1 : kTile);
  Adds(p.b, p.a, 1.0f, kTile);
})

PROBE(uninitialised_again, {  // the second owner of a queue's buffer finds nothing of the first
  for (int i = 0; i < 4; ++i) {
    LocalTensor<float> t = p.inputs.AllocTensor<float>();
    DataCopyPad(t, p.in, bytes(wrong && i == 3 ? 128 : 256), no_pad());
    p.inputs.EnQue(t);
    t = p.inputs.DeQue<float>();
    Adds(p.a, t, 1.0f, kTile);
    p.inputs.FreeTensor(t);
  }
})

PROBE(uninitialised_padding, {  // without isPad, what surrounds the data is anything
  DataCopyPad(p.a, p.in, bytes(20), DataCopyPadExtParams<float>(!wrong, 0, 3, 0.0f));
  p.sync<HardEvent::MTE2_V>();
  Adds(p.b, p.a, 1.0f, 8);
})

PROBE(uninitialised_dummy, {  // nor is what fills the last data block a value
  DataCopyPad(p.a, p.in, bytes(20), no_pad());
  p.sync<HardEvent::MTE2_V>();
  Adds(p.b, p.a, 1.0f, wrong ? 6 : 5);
})

PROBE(uninitialised_scratch, {  // sharedTmpBuffer holds nothing afterwards
  p.fill();
  LocalTensor<float> scratch = p.bits.Get<float>();
  Duplicate(scratch, 0.0f, kTile);
  ReduceMax(p.b, p.a, scratch, kTile, false);
  Adds(p.b[32], wrong ? scratch : p.a, 1.0f, 8);
})

PROBE(uninitialised_work, {
  p.fill();
  if (!wrong) DataCopy(p.work, p.a, kTile);
  PipeBarrier<PIPE_ALL>();
  DataCopy(p.b, p.work, kTile);
})

PROBE(not_written, {
  p.fill();
  DataCopyPad(p.out, p.a, bytes(wrong ? 252 : 256));
})

PROBE(position, {
  LocalTensor<float> t = p.inputs.AllocTensor<float>();
  DataCopy(wrong ? p.a : t, p.in, kTile);
  p.inputs.FreeTensor(t);
})

PROBE(position_out, {
  LocalTensor<float> t = p.outputs.AllocTensor<float>();
  Duplicate(wrong ? p.a : t, 1.0f, kTile);
  p.sync<HardEvent::V_MTE3>();
  DataCopy(p.io, wrong ? p.a : t, kTile);
  p.outputs.FreeTensor(t);
})
