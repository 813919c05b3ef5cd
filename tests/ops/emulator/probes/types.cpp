// Types and pipes that Atlas A2/A3 does not have: lines with a reason must fail to compile for it.
#include "emulator/launch.h"

using namespace AscendC;

void refused(TPipe& pipe) {
  LocalTensor<uint8_t> bits;
  LocalTensor<float> f;
  LocalTensor<half> h;
  LocalTensor<bfloat16_t> b;
  LocalTensor<int16_t> i16;
  LocalTensor<int32_t> i32;
  LocalTensor<uint32_t> u32;
  LocalTensor<int64_t> i64;
  static_cast<void>(pipe);
  Add(f, f, f, 8);
  Abs(h, h, 8);
  Cast(f, h, RoundMode::CAST_NONE, 8);
  Add(u32, u32, u32, 8);                                              // refused: Add
  Adds(b, b, bfloat16_t{}, 8);                                        // refused: Adds
  Div(i32, i32, i32, 8);                                              // refused: Div
  Exp(i32, i32, 8);                                                   // refused: Exp
  Abs(i32, i32, 8);                                                   // refused: Abs
  And(i32, i32, i32, 8);                                              // refused: And
  Max(b, b, b, 8);                                                    // refused: Max
  ShiftLeft(i64, i64, int64_t(1), 8);                                 // refused: ShiftLeft
  Duplicate(i64, int64_t(1), 8);                                      // refused: Duplicate
  CreateVecIndex(u32, 0u, 8);                                         // refused: CreateVecIndex
  ReduceMax(i32, i32, i32, 8);                                        // refused: ReduceMax
  ReduceSum(i32, i32, i32, 8);                                        // refused: ReduceSum
  WholeReduceMax(i32, i32, 64, 1, 1, 1, 8);                           // refused: ReduceRepeat
  Compare(bits, u32, u32, CMPMODE::EQ, 64);                           // refused: Compare
  CompareScalar(bits, i16, int16_t(0), CMPMODE::EQ, 128);             // refused: CompareScalar
  Select(i32, bits, i32, i32, SELMODE::VSEL_TENSOR_TENSOR_MODE, 64);  // refused: Select
  Cast(i32, i16, RoundMode::CAST_NONE, 8);                            // refused: Cast
  Cast(h, b, RoundMode::CAST_RINT, 8);                                // refused: Cast
  Cast(h, i32, RoundMode::CAST_NONE, 8);                              // refused: Cast
  Cast(u32, f, RoundMode::CAST_RINT, 8);                              // refused: Cast
  PipeBarrier<PIPE_S>();                                              // refused: PipeBarrier
  SyncAll<false>();                                                   // refused: SyncAll
  TQue<TPosition::VECCALC, 1> nowhere;  // refused: queues at VECIN and VECOUT
  static_cast<void>(nowhere.HasTensorInQue());
}
