// A kernel whose every instruction and byte can be counted by hand.
#include "emulator/launch.h"

using namespace AscendC;

constexpr uint32_t kTile = 256;

// out[i] = 2 * in[i] + 1, tile by tile; then each core leaves a mark in `marks`.
__global__ __aicore__ void scale(GM_ADDR in, GM_ADDR out, GM_ADDR marks, uint32_t count) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
  TPipe pipe;
  TQue<TPosition::VECIN, 1> inputs;
  TQue<TPosition::VECOUT, 1> outputs;
  GlobalTensor<float> from, to, mark;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(in), count);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(out), count);
  mark.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(marks));
  pipe.InitBuffer(inputs, 2, kTile * sizeof(float));
  pipe.InitBuffer(outputs, 2, kTile * sizeof(float));
  const auto step = static_cast<uint32_t>(GetBlockNum() * kTile);
  for (auto at = static_cast<uint32_t>(GetBlockIdx() * kTile); at < count; at += step) {
    const uint32_t n = count - at < kTile ? count - at : kTile;
    const DataCopyExtParams copy(1, n * sizeof(float), 0, 0, 0);
    LocalTensor<float> x = inputs.AllocTensor<float>();
    DataCopyPad(x, from[at], copy, DataCopyPadExtParams<float>(false, 0, 0, 0));
    inputs.EnQue(x);
    x = inputs.DeQue<float>();
    LocalTensor<float> y = outputs.AllocTensor<float>();
    Muls(y, x, 2.0f, n);
    PipeBarrier<PIPE_V>();
    Adds(y, y, 1.0f, n);
    inputs.FreeTensor(x);
    outputs.EnQue(y);
    y = outputs.DeQue<float>();
    DataCopyPad(to[at], y, copy);
    outputs.FreeTensor(y);
  }
  SyncAll();
  if (GetBlockIdx() == 0) mark.SetValue(0, mark.GetValue(1));
  DataCacheCleanAndInvalid(mark);
  SyncAll();
}

extern "C" int scale_emulator(const emulator_options* options, emulator_stats* stats, emulator_error* error,
                          int32_t blocks, float* in, float* out, float* marks, int64_t count) {
  emulator::Kernel kernel("scale", *options);
  kernel.input("in", in, count * 4);
  kernel.output("out", out, count * 4);
  kernel.inout("marks", marks, 64);
  const auto address = [](float* tensor) { return reinterpret_cast<uint8_t*>(tensor); };
  return kernel.run(
      blocks, [&] { scale(address(in), address(out), address(marks), count); }, stats, error);
}

extern "C" void struct_sizes(int64_t* sizes) {
  sizes[0] = sizeof(emulator_options);
  sizes[1] = sizeof(emulator_stats);
  sizes[2] = sizeof(emulator_error);
}
