// Lends the noise of verify_seeded's kernels to Python: random words and exponential numbers.
#include "../../../ops/ascendc/verify_seeded/noise.h"
#include "emulator/launch.h"

namespace {

using namespace spec;

// Copies of n words in and out, each in a buffer of its own.
class Bench {
 public:
  explicit Bench(uint32_t n) : n_(n) {}

  LocalTensor<int32_t> buffer() {
    pipe_.InitBuffer(buffers_[used_], n_ * 4);
    const LocalTensor<int32_t> made = buffers_[used_++].Get<int32_t>();
    AscendC::Duplicate(made, 0, static_cast<int32_t>(n_));
    return made;
  }
  void read(const LocalTensor<int32_t>& to, void* from) {
    GlobalTensor<int32_t> gm;
    gm.SetGlobalBuffer(static_cast<int32_t*>(from), n_);
    full_order();
    AscendC::DataCopy(to, gm, n_);
    full_order();
  }
  void write(void* to, const LocalTensor<int32_t>& from) {
    GlobalTensor<int32_t> gm;
    gm.SetGlobalBuffer(static_cast<int32_t*>(to), n_);
    full_order();
    AscendC::DataCopy(gm, from, n_);
    full_order();
  }

 private:
  AscendC::TPipe pipe_;
  AscendC::TBuf<AscendC::TPosition::VECCALC> buffers_[16];
  uint32_t n_, used_ = 0;
};

}  // namespace

// counters, words, scalar_words: uint32 [4, n]; n is a multiple of 64, at most 2048.
extern "C" int philox_emulator(const emulator_options* options, emulator_stats* stats,
                               emulator_error* error, int32_t blocks, int32_t* counters,
                               int32_t* words, int32_t* scalar_words, int64_t n, int64_t first_key,
                               int64_t second_key) {
  emulator::Kernel kernel("philox", *options);
  kernel.input("counters", counters, 16 * n);
  kernel.output("words", words, 16 * n);
  const PhiloxKey key{static_cast<uint32_t>(first_key), static_cast<uint32_t>(second_key)};
  for (int64_t i = 0; i < n; ++i) {
    const auto word = [&](int64_t row) { return static_cast<uint32_t>(counters[row * n + i]); };
    const PhiloxWords made = philox({word(0), word(1), word(2), word(3)}, key);
    const uint32_t each[] = {made.x, made.y, made.z, made.w};
    for (int64_t row = 0; row < 4; ++row) {
      scalar_words[row * n + i] = static_cast<int32_t>(each[row]);
    }
  }
  const auto body = [&] {
    Bench bench(static_cast<uint32_t>(n));
    Words buffers[VectorPhilox::kBuffers];
    for (auto& buffer : buffers) buffer = bench.buffer();
    VectorPhilox generator;
    generator.use(buffers);
    const Words counter[] = {generator.x, generator.y, generator.z, generator.w};
    for (int64_t row = 0; row < 4; ++row) bench.read(counter[row], counters + row * n);
    generator.run(key, static_cast<uint32_t>(n));
    const Words made[] = {generator.x, generator.y, generator.z, generator.w};
    for (int64_t row = 0; row < 4; ++row) bench.write(words + row * n, made[row]);
  };
  return kernel.run(blocks, body, stats, error);
}

// words: uint32 [n]; numbers: float32 [n].
extern "C" int exponential_emulator(const emulator_options* options, emulator_stats* stats,
                                    emulator_error* error, int32_t blocks, int32_t* words,
                                    float* numbers, int64_t n) {
  emulator::Kernel kernel("exponential", *options);
  kernel.input("words", words, 4 * n);
  kernel.output("numbers", numbers, 4 * n);
  const auto body = [&] {
    Bench bench(static_cast<uint32_t>(n));
    const Words given = bench.buffer();
    bench.read(given, words);
    LocalTensor<float> vectors[4];
    for (auto& vector : vectors) vector = bench.buffer().ReinterpretCast<float>();
    const Scratch scratch{vectors[0], vectors[1], vectors[2], vectors[3],
                          bench.buffer().ReinterpretCast<uint8_t>()};
    full_order();
    exponential_numbers(scratch.d, given, scratch, static_cast<uint32_t>(n));
    bench.write(numbers, scratch.d.ReinterpretCast<int32_t>());
  };
  return kernel.run(blocks, body, stats, error);
}
