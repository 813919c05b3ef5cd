// GlobalTensor and LocalTensor.
#pragma once
#include "cache.h"

namespace AscendC {

template <typename T>
class GlobalTensor {
 public:
  using PrimType = T;

  void SetGlobalBuffer(T* buffer, uint64_t size) {
    address_ = buffer;
    size_ = size;
    const auto origin = reinterpret_cast<uint64_t>(buffer);
    ref_ = emulator::GmRef{origin, size == 0 ? 0 : origin + size * sizeof(T)};
  }
  void SetGlobalBuffer(T* buffer) { SetGlobalBuffer(buffer, 0); }

  const emulator::GmRef& ref() const { return ref_; }
  const T* GetPhyAddr() const { return address_; }
  T* GetPhyAddr(uint64_t offset) const { return address_ + offset; }
  uint64_t GetSize() const { return size_; }
  void SetL2CacheHint(int) {}

  GlobalTensor operator[](uint64_t offset) const {
    GlobalTensor part = *this;
    part.address_ = address_ + offset;
    part.size_ = size_ > offset ? size_ - offset : 0;
    return part;
  }
  template <typename U>
  GlobalTensor<U> ReinterpretCast() const {
    GlobalTensor<U> other;
    other.SetGlobalBuffer(reinterpret_cast<U*>(address_), size_ * sizeof(T) / sizeof(U));
    other.ref_ = ref_;
    return other;
  }

  // Through the data cache; see DataCacheCleanAndInvalid.
  T GetValue(uint64_t offset, EMULATOR_SITE) const {
    emulator::Op op("GlobalTensor::GetValue", PIPE_S, site);
    ++op.core.scalar_reads;
    op.read_gm(ref_, address_ + offset, sizeof(T), "an element", true);
    return address_[offset];
  }
  T operator()(uint64_t offset) const { return GetValue(offset); }
  void SetValue(uint64_t offset, T value, EMULATOR_SITE) const {
    emulator::Op op("GlobalTensor::SetValue", PIPE_S, site);
    ++op.core.scalar_writes;
    op.write_gm(ref_, address_ + offset, sizeof(T), "an element", true);
    address_[offset] = value;
  }

 private:
  template <typename U>
  friend class GlobalTensor;

  T* address_ = nullptr;
  uint64_t size_ = 0;
  emulator::GmRef ref_;
};

template <typename T>
class LocalTensor {
 public:
  using PrimType = T;

  LocalTensor() = default;
  LocalTensor(const emulator::UbRef& ref, TPosition position) : ref_(ref), position_(position) {}

  const emulator::UbRef& ref() const { return ref_; }
  int32_t GetPosition() const { return static_cast<int32_t>(position_); }
  uint32_t GetSize() const { return ref_.bytes / sizeof(T); }
  void SetSize(uint32_t size, EMULATOR_SITE) {
    const uint64_t bytes = static_cast<uint64_t>(size) * sizeof(T);
    emulator::Core& core = emulator::require_core("LocalTensor::SetSize");
    const uint64_t end = ref_.buffer < 0 ? 0 : core.buffers[ref_.buffer].end();
    if (ref_.offset + bytes > end) {
      emulator::fail_here(core, emulator::Kind::kUbBounds, "LocalTensor::SetSize", site,
                      emulator::num(bytes) + " bytes; the buffer has " + emulator::num(end - ref_.offset) +
                          " from here",
                      "allocate more in InitBuffer");
    }
    ref_.bytes = static_cast<uint32_t>(bytes);
  }

  LocalTensor operator[](uint32_t offset) const {
    const uint64_t bytes = static_cast<uint64_t>(offset) * sizeof(T);
    if (bytes > ref_.bytes) {
      emulator::fail_here(emulator::require_core("LocalTensor::operator[]"), emulator::Kind::kUbBounds,
                      "LocalTensor::operator[]", emulator::Site{},
                      "offset " + emulator::num(offset) + " lies past the tensor's " +
                          emulator::num(GetSize()) + " elements",
                      "check the offset");
    }
    LocalTensor part = *this;
    part.ref_.offset += static_cast<uint32_t>(bytes);
    part.ref_.bytes -= static_cast<uint32_t>(bytes);
    return part;
  }
  template <typename U>
  LocalTensor<U> ReinterpretCast() const {
    return LocalTensor<U>(ref_, position_);
  }

  T GetValue(uint32_t index, EMULATOR_SITE) const {
    emulator::Op op("LocalTensor::GetValue", PIPE_S, site);
    T value;
    std::memcpy(
        static_cast<void*>(&value),
        op.read(ref_, static_cast<uint64_t>(index) * sizeof(T), sizeof(T), "an element", sizeof(T)),
        sizeof(T));
    return value;
  }
  T operator()(uint32_t index) const { return GetValue(index); }
  template <typename V>
  void SetValue(uint32_t index, V new_value, EMULATOR_SITE) const {
    emulator::Op op("LocalTensor::SetValue", PIPE_S, site);
    const T value = static_cast<T>(new_value);
    std::memcpy(op.write(ref_, static_cast<uint64_t>(index) * sizeof(T), sizeof(T), "an element",
                         sizeof(T)),
                &value, sizeof(T));
  }

 private:
  emulator::UbRef ref_;
  TPosition position_ = TPosition::VECCALC;
};

template <typename T, CacheLine entireType = CacheLine::SINGLE_CACHE_LINE,
          DcciDst dcciDst = DcciDst::CACHELINE_OUT>
void DataCacheCleanAndInvalid(const GlobalTensor<T>& dst, EMULATOR_SITE) {
  emulator::Op op("DataCacheCleanAndInvalid", PIPE_S, site);
  if (!op.core.launch->options.checks) return;
  if (entireType == CacheLine::ENTIRE_DATA_CACHE) {
    emulator::clean_all_lines(op.core);
  } else {
    emulator::clean_line(op.core, reinterpret_cast<uint64_t>(dst.GetPhyAddr()));
  }
}

}  // namespace AscendC
