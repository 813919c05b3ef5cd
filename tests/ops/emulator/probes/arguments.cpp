// Ranges of arguments, modes that do not exist, and the kernel's own assertions.
#include "probe.h"

PROBE(repeat, {
  TBuf<> wide;
  p.pipe.InitBuffer(wide, 256 * 256);
  LocalTensor<float> t = wide.Get<float>();
  Duplicate(t, 1.0f, 64 * 256);
  Adds(t, t, 1.0f, 64, wrong ? 256 : 255, UnaryRepeatParams(1, 1, 8, 8));
})

PROBE(mask, {
  p.fill();
  Adds(p.b, p.a, 1.0f, wrong ? 65 : 64, 1, UnaryRepeatParams(1, 1, 8, 8));
})

PROBE(mask_bits, {
  p.fill();
  const uint64_t mask[2] = {~0ull, wrong ? 1ull : 0ull};
  Adds(p.b, p.a, 1.0f, mask, 1, UnaryRepeatParams(1, 1, 8, 8));
})

PROBE(dst_block_stride, {
  p.fill();
  Adds(p.b, p.a, 1.0f, 8, 1, UnaryRepeatParams(wrong ? 0 : 1, 1, 8, 8));
})

PROBE(reduce_repeat, {
  TBuf<> wide;
  p.pipe.InitBuffer(wide, 256 * 256);
  LocalTensor<float> t = wide.Get<float>();
  Duplicate(t, 1.0f, 64 * 256);
  TBuf<> sums;
  p.pipe.InitBuffer(sums, 1024);
  WholeReduceSum(sums.Get<float>(), t, 64, wrong ? 256 : 255, 1, 1, 8);
})

PROBE(count, {
  p.fill();
  Adds(p.b, p.a, 1.0f, wrong ? -1 : 0);
})

PROBE(overlap, {
  p.fill();
  Adds(wrong ? p.a[8] : p.a, p.a, 1.0f, 32);
})

PROBE(overlap_widening, {  // in place, a wider result runs over what is still to be read
  LocalTensor<half> narrow = p.bits.Get<half>();
  Duplicate(narrow, half(1.0f), kTile);
  Cast(wrong ? p.bits.Get<float>() : p.a, narrow, RoundMode::CAST_NONE, kTile);
})

PROBE(block_count, {
  DataCopyPad(p.a, p.in, DataCopyExtParams(wrong ? 4096 : 1, wrong ? 0 : 4, 0, 0, 0), no_pad());
})

PROBE(block_len, { DataCopyPad(p.a, p.in, bytes(wrong ? 6 : 8), no_pad()); })

PROBE(padding, {
  DataCopyPad(p.a, p.in, bytes(20), DataCopyPadExtParams<float>(true, 0, wrong ? 9 : 3, 0.0f));
})

PROBE(shift, {
  LocalTensor<int32_t> t = p.x.Get<int32_t>();
  Duplicate(t, 1, kTile);
  ShiftLeft(t, t, wrong ? 33 : 32, kTile);
})

PROBE(pattern, {
  p.fill();
  uint64_t kept = 0;
  GatherMask(p.b, p.a, static_cast<uint8_t>(wrong ? 8 : 7), false, 0, GatherMaskParams(1, 1, 8, 0),
             kept);
})

PROBE(gather_offset, {
  p.fill();
  LocalTensor<uint32_t> offsets = p.bits.Get<uint32_t>();
  Duplicate(offsets, wrong ? 2u : 4u, kTile);
  Gather(p.b, p.a, offsets, 0u, kTile);
})

PROBE(compare_integers, {
  LocalTensor<int32_t> t = p.x.Get<int32_t>();
  Duplicate(t, 1, kTile);
  CompareScalar(p.bits.Get<uint8_t>(), t, 0, wrong ? CMPMODE::LT : CMPMODE::EQ, kTile);
})

PROBE(select_mode, {
  p.fill();
  LocalTensor<uint8_t> bits = p.bits.Get<uint8_t>();
  CompareScalar(bits, p.a, 0.0f, CMPMODE::GT, kTile);
  Select(p.b, bits, p.a, 0.0f, wrong ? SELMODE::VSEL_CMPMASK_SPR : SELMODE::VSEL_TENSOR_SCALAR_MODE,
         kTile);
})

PROBE(queue_buffers, {  // two at VECIN already
  TQue<TPosition::VECIN, 1> more;
  p.pipe.InitBuffer(more, wrong ? 7 : 6, 32);
})

PROBE(many_buffers, {
  TBuf<> more[64];
  for (int i = 0; i < (wrong ? 58 : 57); ++i) p.pipe.InitBuffer(more[i], 32);
})

PROBE(empty_buffer, {
  TBuf<> buffer;
  p.pipe.InitBuffer(buffer, wrong ? 0 : 32);
})

PROBE(second_pipe, {
  if (wrong) TPipe second;
})

PROBE(assertion, { ascendc_assert(!wrong); })
