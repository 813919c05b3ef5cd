// One launcher per instruction and type: two inputs to the unified buffer, the instruction, and
// its result back.
#include "emulator/launch.h"

using namespace AscendC;

namespace {

struct Args {
  const emulator_options* options;
  emulator_stats* stats;
  emulator_error* error;
  int32_t blocks;
  void *a, *b, *out;
  int64_t in_bytes, out_bytes, count;
  double scalar;
};

void load(const LocalTensor<uint8_t>& to, void* from, int64_t bytes) {
  GlobalTensor<uint8_t> gm;
  gm.SetGlobalBuffer(static_cast<uint8_t*>(from), bytes);
  DataCopyPad(to, gm, DataCopyExtParams(1, bytes, 0, 0, 0),
              DataCopyPadExtParams<uint8_t>(false, 0, 0, 0));
}

// Calls body(dst, x, y, scratch, n) between the copies.
template <typename D, typename S, typename Body>
int run(const Args& args, Body body) {
  emulator::Kernel kernel("probe", *args.options);
  kernel.input("a", args.a, args.in_bytes);
  kernel.input("b", args.b, args.in_bytes);
  kernel.inout("out", args.out, args.out_bytes);
  return kernel.run(
      args.blocks,
      [&] {
        TPipe pipe;
        TBuf<TPosition::VECCALC> dst, x, y, scratch;
        pipe.InitBuffer(dst, 40000);
        pipe.InitBuffer(x, 40000);
        pipe.InitBuffer(y, 40000);
        pipe.InitBuffer(scratch, 40000);
        load(x.Get<uint8_t>(), args.a, args.in_bytes);
        load(y.Get<uint8_t>(), args.b, args.in_bytes);
        load(dst.Get<uint8_t>(), args.out, args.out_bytes);
        PipeBarrier<PIPE_ALL>();
        body(dst.Get<D>(), x.Get<S>(), y.Get<S>(), scratch.Get<S>(),
             static_cast<uint32_t>(args.count));
        PipeBarrier<PIPE_ALL>();
        GlobalTensor<uint8_t> gm;
        gm.SetGlobalBuffer(static_cast<uint8_t*>(args.out), args.out_bytes);
        DataCopyPad(gm, dst.Get<uint8_t>(), DataCopyExtParams(1, args.out_bytes, 0, 0, 0));
      },
      args.stats, args.error);
}

}  // namespace

#define LAUNCHER(Name, D, S, ...)                                                                  \
  extern "C" int Name(const emulator_options* options, emulator_stats* stats, emulator_error* error,           \
                      int32_t blocks, void* a, void* b, void* out, int64_t in_bytes,               \
                      int64_t out_bytes, int64_t count, double scalar) {                           \
    const Args args{options, stats, error, blocks, a, b, out, in_bytes, out_bytes, count, scalar}; \
    return run<D, S>(args, [&](LocalTensor<D> dst, LocalTensor<S> x, LocalTensor<S> y,             \
                               LocalTensor<S> scratch, uint32_t n) {                               \
      static_cast<void>(y);                                                                        \
      static_cast<void>(scratch);                                                                  \
      static_cast<void>(scalar);                                                                   \
      __VA_ARGS__;                                                                                 \
    });                                                                                            \
  }

#define BINARY(Op, T) LAUNCHER(Op##_##T, T, T, Op(dst, x, y, n))
#define UNARY(Op, T) LAUNCHER(Op##_##T, T, T, Op(dst, x, n))
#define SCALAR(Op, T) LAUNCHER(Op##_##T, T, T, Op(dst, x, static_cast<T>(scalar), n))
#define FOUR(Form, Op) Form(Op, int16_t) Form(Op, half) Form(Op, int32_t) Form(Op, float)
#define FLOATS(Form, Op) Form(Op, half) Form(Op, float)

FOUR(BINARY, Add)
FOUR(BINARY, Sub)
FOUR(BINARY, Mul)
FOUR(BINARY, Max)
FOUR(BINARY, Min)
FLOATS(BINARY, Div)
BINARY(And, int16_t)
BINARY(Or, uint16_t)
FLOATS(UNARY, Abs)
FLOATS(UNARY, Exp)
FLOATS(UNARY, Ln)
FLOATS(UNARY, Sqrt)
FLOATS(UNARY, Rsqrt)
FLOATS(UNARY, Reciprocal)
FLOATS(UNARY, Relu)
UNARY(Relu, int32_t)
UNARY(Not, int16_t)
FOUR(SCALAR, Adds)
FOUR(SCALAR, Muls)
FOUR(SCALAR, Maxs)
FOUR(SCALAR, Mins)
SCALAR(ShiftLeft, int32_t)
SCALAR(ShiftRight, int32_t)
SCALAR(ShiftRight, uint32_t)
SCALAR(ShiftRight, int16_t)
FLOATS(SCALAR, Axpy)
FLOATS(BINARY, MulAddDst)

#define FILL(T) LAUNCHER(Duplicate_##T, T, T, Duplicate(dst, static_cast<T>(scalar), n))
FILL(int16_t)
FILL(half)
FILL(int32_t)
FILL(float)
#define INDEX(T) LAUNCHER(CreateVecIndex_##T, T, T, CreateVecIndex(dst, static_cast<T>(scalar), n))
INDEX(half)
INDEX(int32_t)
INDEX(float)
LAUNCHER(ArithProgression_float, float, float, ArithProgression(dst, 1.5f, (float)scalar, n))

#define CAST(D, S) \
  LAUNCHER(Cast_##D##_##S, D, S, Cast(dst, x, static_cast<RoundMode>((int)scalar), n))
CAST(float, half)
CAST(float, bfloat16_t)
CAST(half, float)
CAST(bfloat16_t, float)
CAST(int32_t, float)
CAST(int32_t, half)
CAST(int32_t, bfloat16_t)
CAST(int16_t, float)
CAST(float, int32_t)
CAST(float, int16_t)
CAST(float, float)
CAST(half, int16_t)
CAST(int16_t, int32_t)
CAST(int64_t, int32_t)
CAST(int32_t, int64_t)
CAST(int64_t, float)
CAST(float, int64_t)
CAST(uint8_t, half)
CAST(half, uint8_t)

// `scalar` is the mode for Compare and Select, 10 * the right side + the mode for CompareScalar.
#define COMPARE(T)                                                                            \
  LAUNCHER(Compare_##T, uint8_t, T, Compare(dst, x, y, static_cast<CMPMODE>((int)scalar), n)) \
  LAUNCHER(CompareScalar_##T, uint8_t, T,                                                     \
           CompareScalar(dst, x, static_cast<T>((int)scalar / 10),                            \
                         static_cast<CMPMODE>((int)scalar % 10), n))
COMPARE(float)
COMPARE(half)
COMPARE(int32_t)

// The mask is what y > 0 says.
#define SELECT(T)                                                            \
  LAUNCHER(Select_##T, T, T, {                                               \
    LocalTensor<uint8_t> bits = scratch.template ReinterpretCast<uint8_t>(); \
    CompareScalar(bits, y, static_cast<T>(0.0f), CMPMODE::GT, n);            \
    const auto mode = static_cast<SELMODE>((int)scalar);                     \
    if (mode == SELMODE::VSEL_TENSOR_SCALAR_MODE) {                          \
      Select(dst, bits, x, static_cast<T>(7.0f), mode, n);                   \
    } else {                                                                 \
      Select(dst, bits, x, y, mode, n);                                      \
    }                                                                        \
  })
SELECT(float)
SELECT(half)

#define REDUCE(T)                                                                                \
  LAUNCHER(ReduceMax_##T, T, T, ReduceMax(dst, x, scratch, n, scalar != 0))                      \
  LAUNCHER(ReduceMin_##T, T, T, ReduceMin(dst, x, scratch, n, scalar != 0))                      \
  LAUNCHER(ReduceSum_##T, T, T, ReduceSum(dst, x, scratch, n))                                   \
  LAUNCHER(WholeReduceMax_##T, T, T, WholeReduceMax(dst, x, n, 4, 1, 1, 8))                      \
  LAUNCHER(WholeReduceMaxIndexFirst_##T, T, T,                                                   \
           WholeReduceMax(dst, x, n, 4, 1, 1, 8, ReduceOrder::ORDER_INDEX_VALUE))                \
  LAUNCHER(WholeReduceMaxOnlyIndex_##T, T, T,                                                    \
           WholeReduceMax(dst, x, n, 4, 1, 1, 8, ReduceOrder::ORDER_ONLY_INDEX))                 \
  LAUNCHER(WholeReduceSum_##T, T, T, WholeReduceSum(dst, x, n, 4, 1, 1, 8))                      \
  LAUNCHER(BlockReduceSum_##T, T, T, BlockReduceSum(dst, x, 4, n, 1, 1, 8))                      \
  LAUNCHER(BlockReduceMax_##T, T, T, BlockReduceMax(dst, x, 4, n, 1, 1, 8))                      \
  LAUNCHER(ReduceRepeatMin_##T, T, T, {                                                          \
    const uint64_t odd[2] = {0xaaaaaaaaaaaaaaaaull, sizeof(T) == 2 ? 0xaaaaaaaaaaaaaaaaull : 0}; \
    ReduceRepeat<ReduceType::MIN>(dst, x, odd, 4, 1, 1, 8, ReduceOrder::ORDER_ONLY_VALUE);       \
  })
REDUCE(float)
REDUCE(half)

LAUNCHER(Brcb_float, float, float, Brcb(dst, x, n / 8, BrcbRepeatParams(1, 8)))
LAUNCHER(DataCopyLocal_float, float, float, DataCopy(dst, x, n))
LAUNCHER(Gather_float, float, float,
         Gather(dst, x, y.ReinterpretCast<uint32_t>(), (uint32_t)scalar, n))
LAUNCHER(GatherMaskPattern_float, float, float, {
  uint64_t kept = 0;
  GatherMask(dst, x, static_cast<uint8_t>(scalar), false, 0, GatherMaskParams(1, n / 64, 8, 0),
             kept);
  dst.SetValue(n, static_cast<float>(kept));
})
LAUNCHER(GatherMaskTensor_float, float, float, {
  uint64_t kept = 0;
  GatherMask(dst, x, y.ReinterpretCast<uint32_t>(), true, n, GatherMaskParams(1, 1, 8, 0), kept);
  dst.SetValue(n, static_cast<float>(kept));
})

// Every second data block of two repeats, 16 elements of each repeat.
LAUNCHER(AddStrided_float, float, float,
         Add(dst, x, y, 16, 2, BinaryRepeatParams(2, 2, 2, 16, 16, 16)))
LAUNCHER(AddsMasked_float, float, float, {
  const uint64_t mask[2] = {0x5555555555555555ull, 0};
  Adds(dst, x, static_cast<float>(scalar), mask, 2, UnaryRepeatParams(1, 1, 8, 8));
})
LAUNCHER(CastStrided_float_half, float, half,
         Cast(dst, x, RoundMode::CAST_NONE, 64, 2, UnaryRepeatParams(1, 1, 8, 4)))
