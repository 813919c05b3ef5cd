// What the probes of the rules share. A probe is a small kernel with an error that `wrong` turns
// on.
#pragma once
#include "emulator/launch.h"

using namespace AscendC;

constexpr int64_t kFloats = 4096;  // in each tensor
constexpr int64_t kRows = 8, kRowFloats = 60, kPitchFloats = 64;
constexpr uint32_t kTile = 64;

struct Tensors {
  float* in;     // [kFloats], input
  float* table;  // [kRows, kRowFloats] with rows kPitchFloats apart, input
  float* io;     // [kFloats], has a value and may be changed
  float* work;   // [kFloats], workspace
  float* out;    // [kTile], output
};

// A kernel's view of them, with a pipe and buffers of a tile each.
struct Probe {
  explicit Probe(const Tensors& t) : tensors(t) {
    in.SetGlobalBuffer(t.in, kFloats);
    table.SetGlobalBuffer(t.table, kRows * kPitchFloats);
    io.SetGlobalBuffer(t.io, kFloats);
    work.SetGlobalBuffer(t.work, kFloats);
    out.SetGlobalBuffer(t.out, kTile);
    pipe.InitBuffer(x, kTile * 4);
    pipe.InitBuffer(y, kTile * 4);
    pipe.InitBuffer(bits, 256);
    pipe.InitBuffer(inputs, 2, kTile * 4);
    pipe.InitBuffer(outputs, 2, kTile * 4);
    a = x.Get<float>();
    b = y.Get<float>();
  }
  // Gives `a` a value, seen by all pipes.
  void fill() {
    Duplicate(a, 1.0f, kTile);
    PipeBarrier<PIPE_ALL>();
  }
  template <HardEvent event>
  void sync() {
    const TEventID id = pipe.FetchEventID<event>();
    SetFlag<event>(id);
    WaitFlag<event>(id);
  }

  Tensors tensors;
  TPipe pipe;
  GlobalTensor<float> in, table, io, work, out;
  TBuf<TPosition::VECCALC> x, y, bits;
  TQue<TPosition::VECIN, 1> inputs;
  TQue<TPosition::VECOUT, 1> outputs;
  LocalTensor<float> a, b;
};

inline DataCopyExtParams bytes(uint32_t count) { return DataCopyExtParams(1, count, 0, 0, 0); }
inline DataCopyPadExtParams<float> no_pad() { return DataCopyPadExtParams<float>(false, 0, 0, 0); }

// Defines the launcher `probe_<name>`; the body sees `p` and `wrong`.
#define PROBE(Name, ...)                                                                         \
  static void Name##_kernel(Probe& p, bool wrong) { __VA_ARGS__ }                                \
  extern "C" int probe_##Name(const emulator_options* options, emulator_stats* stats, emulator_error* error, \
                              int32_t blocks, int64_t wrong, float* in, float* table, float* io, \
                              float* work, float* out) {                                         \
    const Tensors tensors{in, table, io, work, out};                                             \
    emulator::Kernel kernel(#Name, *options);                                                        \
    kernel.input("in", in, kFloats * 4);                                                         \
    kernel.input("table", table, ((kRows - 1) * kPitchFloats + kRowFloats) * 4)                  \
        .rows(kRowFloats * 4, kPitchFloats * 4);                                                 \
    kernel.inout("io", io, kFloats * 4);                                                         \
    kernel.workspace("work", work, kFloats * 4);                                                 \
    if (out != nullptr) kernel.output("out", out, kTile * 4);                                    \
    return kernel.run(                                                                           \
        blocks,                                                                                  \
        [&] {                                                                                    \
          KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);                                     \
          Probe p(tensors);                                                                      \
          Name##_kernel(p, wrong != 0);                                                          \
        },                                                                                       \
        stats, error);                                                                           \
  }
